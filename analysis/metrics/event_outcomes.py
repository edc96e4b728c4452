"""Planned events of a trial, and the times at which they took place.

An event is, for example, a slowdown or a changed link.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.metrics.worker_seconds import list_membership_changes
from analysis.reading.absences import find_absences
from analysis.reading.run_table import TrialLogTables
from analysis.statistics.centre import Floats
from services.cluster.declared_event import LastingEvent
from services.cluster.events import PlannedEvent


@dataclass(frozen=True)
class PlannedVsActualTimes:
    """One planned event and when it took place, in virtual seconds since training began."""

    number: int
    kind: str
    nodes: list[str]
    planned_s: float | None  # None where the event waits for a step that no worker reached
    planned_step: int | None
    applied_s: (
        float | None
    )  # when the last of its nodes had applied it; None where it did not take place or had no effect
    ended_s: float | None  # when the event's change was undone; None where it was not
    lateness_s: float | None  # of its begin or its end, whichever was later than planned by more
    # Exchange and wait in the steps that overlap with the event, beyond that of as many other steps: of the member that
    # was blocked for the shortest time, and of the one that was blocked for the longest. None: not measured.
    least_blocked_s: float | None = None
    most_blocked_s: float | None = None
    was_due: bool = True  # whether the moment of the event came before the end of training
    no_effect_reason: str = ""  # why an event that was due had no effect, such as: the node was already lost
    changes_times: bool = True  # whether the event can change times of steps or messages


def find_event_times(trial: TrialLogTables) -> list[PlannedVsActualTimes]:
    """Return when every planned event of a trial, such as a slowdown, took place.

    Events are in the order of the trial plan.
    """
    rows_of = dict(iter(trial.events.groupby("number")))
    applied = {event.number: rows_of.get(event.number, trial.events[:0]) for event in trial.plan.events}
    names = dict.fromkeys(name for event in trial.plan.events for name in event.change.node_names)
    names |= {node.name: None for node in trial.plan.nodes if node.role == "worker"}
    absences_s = {name: find_absences(trial, name) for name in names} if trial.plan.events else {}
    blocking = _BlockingTimes(trial, absences_s, dict(_find_spans(trial, applied)))
    return [_times_of_planned_event(trial, event, applied[event.number], blocking) for event in trial.plan.events]


def _times_of_planned_event(
    trial: TrialLogTables, planned: PlannedEvent, rows: pd.DataFrame, blocking: "_BlockingTimes"
) -> PlannedVsActualTimes:
    begin_rows, end_rows = rows[rows["phase"] == "begin"], rows[rows["phase"] == "end"]
    begin_s, end_s = _column_max(begin_rows, "applied_s"), _column_max(end_rows, "applied_s")
    had_effect = not planned.is_node_fault or any(map(len, begin_rows["nodes"])) or begin_rows.empty
    least_blocked_s, most_blocked_s = blocking.measure(planned.number)
    return PlannedVsActualTimes(
        number=planned.number,
        kind=planned.change.kind,
        nodes=list(planned.change.node_names),
        planned_s=planned.time_s if planned.time_s is not None else _column_max(begin_rows, "planned_s"),
        planned_step=planned.step,
        applied_s=begin_s if had_effect else None,
        ended_s=end_s if had_effect else None,
        lateness_s=_column_max(rows, "lateness_s"),
        least_blocked_s=least_blocked_s,
        most_blocked_s=most_blocked_s,
        was_due=len(rows) > 0 or _was_due(trial, planned),
        no_effect_reason="" if had_effect else _explain_missing_effect(planned, begin_s or 0.0, blocking.absences_s),
        changes_times=planned.change.changes_times,
    )


def _was_due(trial: TrialLogTables, event: PlannedEvent) -> bool:
    """Return whether the moment of an event that was not applied came before the end of the trial."""
    if event.time_s is not None:
        return event.time_s < (trial.seconds or 0.0)
    return event.step is not None and bool((trial.steps["step"] > event.step).any())


def _explain_missing_effect(
    fault: PlannedEvent, begin_s: float, absences_s: Mapping[str, list[tuple[float, float]]]
) -> str:
    """Return why a fault changed none of its nodes."""
    names = fault.change.node_names
    were_lost = [any(lost_s <= begin_s <= back_s for lost_s, back_s in absences_s[name]) for name in names]
    node, were = ("the node", "was") if len(names) == 1 else ("the nodes", "were")
    if all(were_lost):
        return f"{node} {were} already lost"
    return f"{node} {were} already lost or had ended" if any(were_lost) else f"{node} had already ended"


def _find_spans(
    trial: TrialLogTables, applied: Mapping[int, pd.DataFrame]
) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield the number of each applied event that can change times, and when it began and ended.

    Events of a moment, such as a kill, end when they begin. A change that is not undone lasts to the end of the trial.
    """
    for event in trial.plan.events:
        rows = applied[event.number]
        begin_rows = rows[rows["phase"] == "begin"]
        begin_s, end_s = _column_min(begin_rows, "applied_s"), _column_max(rows[rows["phase"] == "end"], "applied_s")
        has_no_effect = event.is_node_fault and not any(map(len, begin_rows["nodes"]))
        if begin_s is None or has_no_effect or not event.change.changes_times:
            continue
        lasts = isinstance(event.change, LastingEvent) or event.change.lasts is not None
        yield event.number, (begin_s, end_s if end_s is not None else inf if lasts else begin_s)


class _BlockingTimes:
    """Seconds for which events block the workers that are members."""

    def __init__(
        self,
        trial: TrialLogTables,
        absences_s: Mapping[str, list[tuple[float, float]]],
        spans_s: Mapping[int, tuple[float, float]],
    ) -> None:
        """Prepare the times; `spans_s` are begin and end of the events that can change times, by number."""
        self.absences_s, self._spans_s = absences_s, spans_s
        self._changes_s = [(each.failure_s, each.epoch.time_s) for each in list_membership_changes(trial.membership)]
        self._has_broken_off = trial.status.get("status") != "success" or not trial.run_stop
        self._steps = {}
        for name, rows in trial.steps.groupby("node", observed=True) if spans_s else ():
            starts_s = rows["start_s"].to_numpy(float)
            blocked_s = (rows["exchange_s"] + rows["wait_s"]).to_numpy(float)
            self._steps[str(name)] = starts_s, starts_s + rows["step_s"].to_numpy(float), blocked_s
        # Where only some steps exchange, their median says nothing about the exchange.
        average = np.median if trial.plan.exchange_period == 1 else np.mean
        self._usual_s: dict[str, float | None] = {}
        for name, (starts_s, ends_s, blocked_s) in self._steps.items():
            is_outside = np.ones(len(starts_s), dtype=bool)
            for begin_s, end_s in spans_s.values():
                is_outside &= ~_overlap(starts_s, ends_s, begin_s, end_s)
            self._usual_s[name] = float(average(blocked_s[is_outside])) if is_outside.any() else None

    def measure(self, event_number: int) -> tuple[float | None, float | None]:
        """Return the shortest and the longest time for which an event blocked a member; None: not measured.

        It is not measured if the event can change no times, if a step was broken off during the event, if no step
        overlaps with the event, or if all steps of a member overlap with events.
        """
        span_s = self._spans_s.get(event_number)
        if span_s is None or self._was_step_broken_off(*span_s):
            return None, None
        members = [name for name in self._steps if not self._was_away(name, *span_s)]
        seconds = [blocked_s for name in members if (blocked_s := self._blocked_s(name, *span_s)) is not None]
        if not seconds or any(self._usual_s[name] is None for name in members):
            return None, None
        return min(seconds), max(seconds)

    def _blocked_s(self, worker: str, begin_s: float, end_s: float) -> float | None:
        """Return the seconds for which an event blocked a worker; None if none of its steps overlaps with the event."""
        starts_s, ends_s, blocked_s = self._steps[worker]
        overlaps = _overlap(starts_s, ends_s, begin_s, end_s)
        if not overlaps.any():
            return None
        return max(0.0, float((blocked_s[overlaps] - (self._usual_s[worker] or 0.0)).sum()))

    def _was_away(self, worker: str, begin_s: float, end_s: float) -> bool:
        return any(lost_s <= end_s and begin_s <= back_s for lost_s, back_s in self.absences_s[worker])

    def _was_step_broken_off(self, begin_s: float, end_s: float) -> bool:
        """Return whether a step ended without a record: the membership changed, or the trial failed, meanwhile."""
        if any(failure_s <= end_s and epoch_s >= begin_s for failure_s, epoch_s in self._changes_s):
            return True
        last_end_s = max((ends_s.max() for _, ends_s, _ in self._steps.values()), default=0.0)
        return self._has_broken_off and last_end_s < end_s


def _overlap(starts_s: Floats, ends_s: Floats, begin_s: float, end_s: float) -> NDArray[np.bool_]:
    """Return for each step whether it overlaps with an event, which may begin and end at the same moment."""
    return (ends_s > begin_s) & ((starts_s < end_s) | (starts_s <= begin_s))


def _column_min(event_rows: pd.DataFrame, column: str) -> float | None:
    return float(event_rows[column].astype(float).min()) if len(event_rows) else None


def _column_max(event_rows: pd.DataFrame, column: str) -> float | None:
    return float(event_rows[column].astype(float).max()) if len(event_rows) else None
