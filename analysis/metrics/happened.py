"""What was to happen while a trial ran, and what did?"""

from dataclasses import dataclass

import pandas as pd

from analysis.reading.run_table import TrialTable


@dataclass(frozen=True)
class Happened:
    """One planned event; virtual seconds since training began."""

    number: int
    kind: str
    nodes: list[str]
    planned_s: float | None  # None where a step decides and the step never came
    planned_step: int | None
    applied_s: float | None  # when the last that it concerns had applied it; None when it never happened
    ended_s: float | None  # when it was undone; None when it never was
    lateness_s: float | None  # the worst, of its begin and its end


def happened(trial: TrialTable) -> list[Happened]:
    """Every planned event, in the order of the plan."""
    return [_one(trial, event.number) for event in trial.plan.events]


def _one(trial: TrialTable, number: int) -> Happened:
    event = next(event for event in trial.plan.events if event.number == number)
    mine = trial.events[trial.events["number"] == number]
    begun, ended = mine[mine["phase"] == "begin"], mine[mine["phase"] == "end"]
    return Happened(
        number=number,
        kind=event.change.kind,
        nodes=list(event.change.node_names),
        planned_s=event.time_s if event.time_s is not None else _most(begun, "planned_s"),
        planned_step=event.step,
        applied_s=_most(begun, "applied_s"),
        ended_s=_most(ended, "applied_s"),
        lateness_s=_most(mine, "lateness_s"),
    )


def _most(rows: pd.DataFrame, column: str) -> float | None:
    return float(rows[column].astype(float).max()) if len(rows) else None
