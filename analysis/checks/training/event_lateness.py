"""Check that planned events, such as slowdowns of workers, were applied on time."""

from collections.abc import Iterator

from analysis.checks.verdict import (
    SLOW_HOST_REMEDY,
    CheckVerdict,
    VerdictLevel,
    disturbed_verdict,
    invalid_verdict,
    valid_verdict,
)
from analysis.reading.run_table import TrialLogTables
from services.cluster.events import PlannedEvent

LATENESS_QUANTILE = 0.99


def check_planned_event_lateness(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a planned event was not applied, or was applied too late.

    The 99th percentile of their lateness is compared with the threshold. Lateness is logged in virtual time and
    compared in wall time. An event that was due only after its nodes had finished training is not missing.
    """
    if not trial.plan.events:
        return valid_verdict("no event is planned")
    if missing := list(overdue_planned_events(trial)):
        return invalid_verdict(f"planned events were due but never applied: {', '.join(missing)}")
    failed = trial.events[trial.events["lateness_s"].isna()]
    if count := len(failed):
        return invalid_verdict(f"{count} changes of events could not be applied, for example {failed['kind'].iloc[0]}")
    late_s = trial.events["lateness_s"].astype(float).abs() * trial.plan.dilation
    if late_s.empty:
        return valid_verdict("no event was due: training ended before its time, or its workers did not reach its step")
    limit_s = float(trial.plan.fidelity.event_lateness)
    p99_s = float(late_s.quantile(LATENESS_QUANTILE, interpolation="higher"))
    measured = f"{len(late_s)} changes of events were applied, at most {1e3 * late_s.max():.3g} ms late"
    if late_events := list(planned_events_after_training(trial)):
        measured += f"; training ended before {', '.join(late_events)}"
    if p99_s <= limit_s:
        return valid_verdict(measured)
    limit = f"limit {1e3 * limit_s:g} ms at the 99th percentile"
    advice = "raise the dilation, or use the engine simulated"
    return disturbed_verdict(VerdictLevel.INVALID, f"{measured} ({limit})", advice, SLOW_HOST_REMEDY)


def overdue_planned_events(trial: TrialLogTables) -> Iterator[str]:
    """Yield the events that were due while their nodes trained but were not applied.

    Each event is a text such as `slowdown 2 begin`.
    """
    tolerance_s = float(trial.plan.fidelity.event_lateness) / trial.plan.dilation
    for event in trial.plan.events:
        end_s = _training_end_s(trial, event) - tolerance_s
        changes = trial.events[trial.events["number"] == event.number]
        begins, lasts_s = changes[changes["phase"] == "begin"], event.change.lasts
        if begins.empty and _was_planned_event_due(trial, event, end_s):
            yield f"{event.change.kind} {event.number} begin"
        all_ended = (changes["phase"] == "end").sum() == len(begins)
        if lasts_s is not None and not all_ended and float(begins["applied_s"].max()) + lasts_s < end_s:
            yield f"{event.change.kind} {event.number} end"


def planned_events_after_training(trial: TrialLogTables) -> Iterator[str]:
    """Yield a text such as `slowdown 2` for each event that was not applied because training had ended before."""
    applied_numbers = set(trial.events["number"])
    for event in trial.plan.events:
        is_after = event.time_s is not None and event.time_s >= _training_end_s(trial, event)
        if is_after and event.number not in applied_numbers:
            yield f"{event.change.kind} {event.number}"


def _training_end_s(trial: TrialLogTables, event: PlannedEvent) -> float:
    """Return the virtual time at which the last node that an event concerns finished its last training step.

    A worker that has finished leaves the run and applies no more events, while the trial may wait for slower workers
    and for the last evaluation. A server, or a worker with a shard, serves until all workers have finished.
    """
    trial_end_s = trial.seconds or 0.0
    serves = event.is_link_event and not set(event.change.node_names).isdisjoint(_serving_node_names(trial))
    steps = trial.steps if serves else trial.steps[trial.steps["node"].isin(event.change.node_names)]
    return trial_end_s if steps.empty else min(trial_end_s, float((steps["start_s"] + steps["step_s"]).max()))


def _serving_node_names(trial: TrialLogTables) -> set[str]:
    """Return the names of all nodes but the workers without a shard."""
    shard_owners = set(trial.plan.shard_owners)
    return shard_owners | {node.name for node in trial.plan.nodes if node.role != "worker"}


def _was_planned_event_due(trial: TrialLogTables, event: PlannedEvent, training_end_s: float) -> bool:
    """Return whether a planned event should have begun before the end of training on its nodes.

    An event at a step begins when a worker that it concerns reaches the step. An event of links, and a fault that
    concerns no worker, begins for all nodes when the first worker reaches the step.
    """
    if event.time_s is not None:
        return event.time_s < training_end_s
    triggering_names = [name for name in trial.steps["node"].unique() if event.change.is_triggered_by_step_of(name)]
    steps = trial.steps[trial.steps["node"].isin(triggering_names)]
    return event.step is not None and bool((steps["step"] > event.step).any())
