"""Did events happen when they were planned?"""

from collections.abc import Iterator

from analysis.checks.verdict import SLOWER, Verdict, invalid, valid
from analysis.reading.run_table import TrialTable
from services.cluster.events import Event

SHARE = 0.99


def event_lateness(trial: TrialTable) -> Verdict:
    """Invalid when an event that was due never happened, or the 99th percentile of lateness is over the threshold.

    Lateness is logged in virtual time and judged in the host's.
    """
    if not trial.plan.events:
        return valid("no event is planned")
    if missing := list(overdue(trial)):
        return invalid(f"planned, due and never applied: {', '.join(missing)}")
    failed = trial.events[trial.events["lateness_s"].isna()]
    if len(failed):
        return invalid(f"{len(failed)} changes could not be applied, such as {failed['kind'].iloc[0]}")
    late_s = trial.events["lateness_s"].astype(float).abs() * trial.plan.dilation
    if late_s.empty:
        return valid("none came: the trial was over before, or its worker did no such step")
    limit_s = float(trial.plan.fidelity.event_lateness)
    p99_s = float(late_s.quantile(SHARE, interpolation="higher"))
    found = f"{len(late_s)} changes applied, at most {1e3 * late_s.max():.3g} ms late"
    return invalid(f"{found} (limit {1e3 * limit_s:g} ms)", SLOWER) if p99_s > limit_s else valid(found)


def overdue(trial: TrialTable) -> Iterator[str]:
    """Events whose moment came well before the end, and that nobody says to have applied."""
    plan, applied = trial.plan, trial.events
    end_s = (trial.seconds or 0.0) - float(plan.fidelity.event_lateness) / plan.dilation
    for event in plan.events:
        mine = applied[applied["number"] == event.number]
        begun, lasts = mine[mine["phase"] == "begin"], event.what.lasts
        if begun.empty and _was_due(trial, event, end_s):
            yield f"{event.what.kind} {event.number} begin"
        ended = (mine["phase"] == "end").sum() == len(begun)
        if lasts is not None and not ended and float(begun["applied_s"].max()) + lasts < end_s:
            yield f"{event.what.kind} {event.number} end"


def _was_due(trial: TrialTable, event: Event, end_s: float) -> bool:
    """One at a step begins for those that it is of when they come to it; one of links for all, whoever comes first."""
    if event.time_s is not None:
        return event.time_s < end_s
    steps = trial.steps if event.is_of_links else trial.steps[trial.steps["node"].isin(event.what.nodes)]
    return event.step is not None and bool((steps["step"] > event.step).any())
