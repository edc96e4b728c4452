"""Check that planned events, such as slowdowns of workers, were applied on time."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Self

import pandas as pd

from analysis.checks.verdict import (
    SLOW_HOST_REMEDY,
    CheckVerdict,
    VerdictLevel,
    disturbed_verdict,
    invalid_verdict,
    valid_verdict,
)
from analysis.reading.absences import find_absences
from analysis.reading.run_table import TrialLogTables
from analysis.report.wording import join_names
from services.cluster.events import PlannedEvent

LATENESS_QUANTILE = 0.99


def check_planned_event_lateness(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a planned event was not applied, or was applied too late.

    The 99th percentile of their lateness is compared with the threshold. Lateness is logged in virtual time and
    compared in wall time. An event that was due only after its nodes had finished training is not missing, nor is one
    that was due while its nodes were away: killed, evicted, or not yet joined again.
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
        return valid_verdict(
            "no event was due: training ended before it, its workers did not reach its step, or its nodes were away"
        )
    limit_s = float(trial.plan.fidelity.event_lateness)
    p99_s = float(late_s.quantile(LATENESS_QUANTILE, interpolation="higher"))
    changes = "1 change of events was" if len(late_s) == 1 else f"{len(late_s)} changes of events were"
    measured = f"{changes} applied, at most {1e3 * late_s.max():.3g} ms late"
    if late_events := list(planned_events_after_training(trial)):
        measured += f"; training ended before {', '.join(late_events)}"
    if p99_s <= limit_s:
        return valid_verdict(measured)
    limit = f"limit {1e3 * limit_s:g} ms at the 99th percentile"
    advice = "raise the dilation, or use the engine simulated"
    return disturbed_verdict(VerdictLevel.INVALID, f"{measured} ({limit})", advice, SLOW_HOST_REMEDY)


def overdue_planned_events(trial: TrialLogTables) -> Iterator[str]:
    """Yield the events that were due while their nodes trained but were not applied.

    Each event is a text such as `slowdown 2 begin on worker-1`. Events that nodes apply themselves are compared node by
    node: every node that is a member must have applied them. The engine records faults of nodes, and changes of links
    that the kernel makes, for all nodes at once.
    """
    tolerance_s = float(trial.plan.fidelity.event_lateness) / trial.plan.dilation
    changes_of = dict(iter(trial.events.groupby("number")))
    timelines: dict[str, _NodeTimeline] = {}
    for event in trial.plan.events:
        changes = changes_of.get(event.number, trial.events[:0])
        is_of_engine = changes["by"] != "transport"
        if event.is_node_fault or (event.is_link_event and is_of_engine.any()):
            of_engine = changes if event.is_node_fault else changes[is_of_engine]
            yield from _find_overdue_changes_of_engine(trial, event, of_engine, tolerance_s)
            continue
        for name in event.change.node_names:
            if name not in timelines:
                timelines[name] = _NodeTimeline.of(trial, name, tolerance_s)
        overdue = [
            (name, timelines[name].find_overdue_change(trial, event, changes)) for name in event.change.node_names
        ]
        for phase in ("begin", "end"):
            if names := [name for name, missing in overdue if missing == phase]:
                yield f"{event.change.kind} {event.number} {phase} on {join_names(names)}"


def _find_overdue_changes_of_engine(
    trial: TrialLogTables, event: PlannedEvent, changes: pd.DataFrame, tolerance_s: float
) -> Iterator[str]:
    """Yield the begin or the end of an event of the engine, if it was due and the engine has not recorded it."""
    end_s = _training_end_s(trial, event) - tolerance_s
    begins, lasts_s = changes[changes["phase"] == "begin"], event.change.lasts
    if begins.empty and _was_planned_event_due(trial, event, end_s):
        yield f"{event.change.kind} {event.number} begin"
    all_ended = (changes["phase"] == "end").sum() == len(begins)
    if lasts_s is not None and not all_ended and float(begins["applied_s"].max()) + lasts_s < end_s:
        yield f"{event.change.kind} {event.number} end"


@dataclass(frozen=True)
class _NodeTimeline:
    """Moments that decide whether a node had to apply an event: its steps, absences, and end of training."""

    name: str
    steps: pd.DataFrame  # by start
    absences_s: list[tuple[float, float]]
    tolerance_s: float  # lateness of an event that is accepted
    serves: bool
    end_of_all_steps_s: float  # of all workers; infinite without steps

    @classmethod
    def of(cls, trial: TrialLogTables, node_name: str, tolerance_s: float) -> Self:
        steps = trial.steps[trial.steps["node"] == node_name].sort_values("start_s")
        serves = node_name in _serving_node_names(trial)
        absences_s = find_absences(trial, node_name)
        return cls(node_name, steps, absences_s, tolerance_s, serves, _last_end_s(trial.steps))

    def find_overdue_change(self, trial: TrialLogTables, event: PlannedEvent, changes: pd.DataFrame) -> str | None:
        """Return `begin` or `end` if the node has not applied this change of an event although it had to."""
        own = changes[pd.Series([self.name in names for names in changes["nodes"]], index=changes.index, dtype=bool)]
        begins, has_ended = own[own["phase"] == "begin"], bool((own["phase"] == "end").any())
        begin_s = event.time_s if event.time_s is not None else self._find_start_of_step_event(trial, event)
        end_of_training_s = self._end_of_training_s(trial, event) - self.tolerance_s
        end_s = end_of_training_s if event.step is None else self._last_step_end_s(event)
        if begins.empty and begin_s is not None and begin_s < end_s and not self._is_away(begin_s):
            return "begin"
        lasts_s = event.change.lasts
        if lasts_s is None or has_ended:
            return None
        if event.time_s is None:
            begin_s = float(begins["applied_s"].astype(float).min()) if len(begins) else None
        if begin_s is None or pd.isna(begin_s) or begin_s + lasts_s >= end_of_training_s:
            return None
        ends_with_loss = event.step is not None and event.change.applied_by == "worker"
        moments_s = (begin_s if ends_with_loss else begin_s + lasts_s, begin_s + lasts_s)
        return None if self._is_away(*moments_s) else "end"

    def _find_start_of_step_event(self, trial: TrialLogTables, event: PlannedEvent) -> float | None:
        """Return when an event at a step begins; None if no worker that begins it has gone beyond the step.

        A worker begins its own slowdowns and pauses. One that joins again after the step does not begin those of
        earlier steps. The first worker at the step begins all other events for all nodes.
        """
        is_own = event.change.applied_by == "worker"
        if is_own:
            steps = self.steps
        else:
            names = [name for name in trial.steps["node"].unique() if event.change.is_triggered_by_step_of(name)]
            steps = trial.steps[trial.steps["node"].isin(names)]
        if event.step is None or not (steps["step"] > event.step).any():
            return None
        first = steps[steps["step"] >= event.step].sort_values("start_s").iloc[0]
        start_s = float(first["start_s"])
        was_away = any(end_s <= start_s + self.tolerance_s for _, end_s in self.absences_s)
        return None if is_own and was_away and first["step"] > event.step else start_s

    def _end_of_training_s(self, trial: TrialLogTables, event: PlannedEvent) -> float:
        """Return when the node finished its last step; of a node that serves other nodes, when they finished theirs."""
        return min(trial.seconds or 0.0, self._last_step_end_s(event))

    def _last_step_end_s(self, event: PlannedEvent) -> float:
        serves = self.serves and (event.is_link_event or self.steps.empty)
        return self.end_of_all_steps_s if serves else _last_end_s(self.steps)

    def _is_away(self, first_s: float, last_s: float | None = None) -> bool:
        """Return whether the node was away at a moment, or at some moment of an interval."""
        last_s = first_s if last_s is None else last_s
        return any(
            begin_s - self.tolerance_s <= last_s and first_s <= end_s + self.tolerance_s
            for begin_s, end_s in self.absences_s
        )


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
    serves = event.is_link_event and not set(event.change.node_names).isdisjoint(_serving_node_names(trial))
    steps = trial.steps if serves else trial.steps[trial.steps["node"].isin(event.change.node_names)]
    return min(trial.seconds or 0.0, _last_end_s(steps))


def _last_end_s(steps: pd.DataFrame) -> float:
    """Return when the last of these steps ended; infinity if there are none."""
    return inf if steps.empty else float((steps["start_s"] + steps["step_s"]).max())


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
