"""Table of the planned events of all trials, in the report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.metrics.event_outcomes import PlannedVsActualTimes
from analysis.report.wording import format_number
from analysis.results.trial_result import TrialResult

MAX_EQUAL_EVENTS = 30  # of one kind and the same nodes in a trial; more are only counted
UNKNOWN = "–"


@dataclass(frozen=True)
class EventRow:
    """One event that was due."""

    trial: str
    kind: str
    nodes: str
    planned: str
    applied: str
    ended: str
    lateness_s: float | None
    blocked: str


@dataclass(frozen=True)
class EventTable:
    """Events that were due, and how many others there are."""

    rows: list[EventRow]
    later_count: int  # planned for a moment after the end of training
    left_out_count: int  # due, but more of one kind and the same nodes in a trial than the table has


def make_event_table(trials: Sequence[TrialResult]) -> EventTable:
    """Return the table of the planned events of trials."""
    rows, left_out_count = [], 0
    for trial in trials:
        counts: Counter[tuple[str, ...]] = Counter()
        for event in trial.events:
            if not event.was_due:
                continue
            key = (event.kind, *event.nodes)
            counts[key] += 1
            if counts[key] <= MAX_EQUAL_EVENTS:
                rows.append(_make_row(trial.id, event))
            else:
                left_out_count += 1
    later_count = sum(not event.was_due for trial in trials for event in trial.events)
    return EventTable(rows, later_count, left_out_count)


def _make_row(trial_id: str, event: PlannedVsActualTimes) -> EventRow:
    planned = f"{_format(event.planned_s)} s" if event.planned_step is None else f"step {event.planned_step}"
    applied = f"no effect: {event.no_effect_reason}" if event.no_effect_reason else _format(event.applied_s)
    blocked = UNKNOWN if event.changes_times else "none"
    if event.least_blocked_s is not None and event.most_blocked_s is not None:
        blocked = f"{_format(event.least_blocked_s)} to {_format(event.most_blocked_s)}"
    lateness_s = None if event.no_effect_reason else event.lateness_s
    nodes = ", ".join(event.nodes)
    return EventRow(trial_id, event.kind, nodes, planned, applied, _format(event.ended_s), lateness_s, blocked)


def _format(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else format_number(seconds)
