"""Planned events of a trial, and the times at which they took place.

An event is, for example, a slowdown or a changed link.
"""

from dataclasses import dataclass

import pandas as pd

from analysis.reading.run_table import TrialLogTables


@dataclass(frozen=True)
class PlannedVsActualTimes:
    """One planned event and when it took place, in virtual seconds since training began."""

    number: int
    kind: str
    nodes: list[str]
    planned_s: float | None  # None where the event waits for a step that no worker reached
    planned_step: int | None
    applied_s: float | None  # when the last of its nodes had applied it; None where the event did not take place
    ended_s: float | None  # when the event's change was undone; None where it was not
    lateness_s: float | None  # of its begin or its end, whichever was later than planned by more
    # Exchange and wait, added over the steps that overlap with the event: of the worker that was blocked for the
    # shortest time, and of the one that was blocked for the longest time. None where no step overlaps.
    least_blocked_s: float | None = None
    most_blocked_s: float | None = None


def find_event_times(trial: TrialLogTables) -> list[PlannedVsActualTimes]:
    """Return when every planned event of a trial, such as a slowdown, took place.

    Events are in the order of the trial plan.
    """
    return [_times_of_planned_event(trial, event.number) for event in trial.plan.events]


def _times_of_planned_event(trial: TrialLogTables, event_number: int) -> PlannedVsActualTimes:
    planned = next(event for event in trial.plan.events if event.number == event_number)
    rows = trial.events[trial.events["number"] == event_number]
    begin_rows, end_rows = rows[rows["phase"] == "begin"], rows[rows["phase"] == "end"]
    begin_s, end_s = _column_max(begin_rows, "applied_s"), _column_max(end_rows, "applied_s")
    blocked_s = _blocked_s_by_worker(trial.steps, begin_s, end_s)
    return PlannedVsActualTimes(
        number=event_number,
        kind=planned.change.kind,
        nodes=list(planned.change.node_names),
        planned_s=planned.time_s if planned.time_s is not None else _column_max(begin_rows, "planned_s"),
        planned_step=planned.step,
        applied_s=begin_s,
        ended_s=end_s,
        lateness_s=_column_max(rows, "lateness_s"),
        least_blocked_s=float(blocked_s.min()) if len(blocked_s) else None,
        most_blocked_s=float(blocked_s.max()) if len(blocked_s) else None,
    )


def _blocked_s_by_worker(steps: pd.DataFrame, begin_s: float | None, end_s: float | None) -> "pd.Series[float]":
    """Return the seconds of exchange and wait in the steps that overlap with an event, by worker.

    The series is empty if the event was not applied, or if no step overlaps with it.
    """
    if begin_s is None or steps.empty:
        return pd.Series(dtype=float)
    overlaps = steps["start_s"] + steps["step_s"] > begin_s
    if end_s is not None:
        overlaps &= steps["start_s"] < end_s
    blocked_s = (steps["exchange_s"] + steps["wait_s"]).where(overlaps, 0.0)
    return blocked_s.groupby(steps["node"], observed=True).sum() if overlaps.any() else pd.Series(dtype=float)


def _column_max(event_rows: pd.DataFrame, column: str) -> float | None:
    return float(event_rows[column].astype(float).max()) if len(event_rows) else None
