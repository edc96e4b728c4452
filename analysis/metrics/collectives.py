"""Times of the collectives of a user's command, beside their closed forms."""

from dataclasses import dataclass

import pandas as pd

from analysis.reading.run_table import TrialLogTables
from services.commands.script_process.ensayo_meter.step_schedule import UNSTEADY_STEPS

POINT_TO_POINT = ("send", "recv")
FIRST_STEADY_STEP = UNSTEADY_STEPS


@dataclass(frozen=True)
class CollectiveTimes:
    """Calls of one operation with one size and data type, in the steps in steady state."""

    operation: str
    bytes: int  # size of the input on one rank
    dtype: str  # such as float32; empty for operations without tensors
    calls_per_step: float
    median_s: float  # from the begin on the last rank to the end on the last rank
    predicted_s: float | None  # by the closed form of the collective; None: the dry run had no such call
    gloo_fallback_share: float  # share of the calls that gloo has run in place of Ensayo


def measure_collectives(trial: TrialLogTables) -> list[CollectiveTimes]:
    """Return the times of the collectives of a command by operation, size and type, in the order of their first calls.

    Calls of different ranks belong together if they are the n-th call of this operation, size and type in the same
    step. A call that is not complete on all ranks of its group is left out, and so are messages between two ranks and
    extra collectives, which the step of the dry run does not have.
    """
    steady = _select_steady_calls(trial)
    calls = steady[~steady["is_extra"] & ~steady["operation"].isin(POINT_TO_POINT)]
    if not len(calls):
        return []
    kind = ["step", "operation", "bytes", "dtype"]
    numbered = calls.assign(number=calls.groupby(["node", *kind]).cumcount())
    joined = numbered.groupby([*kind, "number"], sort=False, as_index=False).agg(
        group_size=("group_size", "first"),
        begin_s=("begin_s", "max"),
        end_s=("end_s", "max"),
        ended=("end_s", "count"),
        ranks=("node", "count"),
        gloo_fallback_share=("is_gloo_fallback", "mean"),
    )
    whole = joined[(joined["ended"] == joined["ranks"]) & (joined["ranks"] == joined["group_size"])]
    step_count = whole["step"].nunique()
    groups = whole.groupby(["operation", "bytes", "dtype"], sort=False)
    return [_summarise_calls(trial, group, step_count) for _, group in groups]


def count_extra_collectives(trial: TrialLogTables) -> int:
    """Return how many collectives of a rank the step of the dry run does not have, such as those of an evaluation.

    Steps in steady state are counted, on the rank with the most such collectives.
    """
    steady = _select_steady_calls(trial)
    return int(steady[steady["is_extra"]].groupby("node").size().max()) if steady["is_extra"].any() else 0


def _select_steady_calls(trial: TrialLogTables) -> pd.DataFrame:
    return trial.collectives[trial.collectives["step"] >= FIRST_STEADY_STEP]


def _summarise_calls(trial: TrialLogTables, calls: pd.DataFrame, step_count: int) -> CollectiveTimes:
    operation, size, dtype = str(calls["operation"].iloc[0]), int(calls["bytes"].iloc[0]), str(calls["dtype"].iloc[0])
    return CollectiveTimes(
        operation=operation,
        bytes=size,
        dtype=dtype,
        calls_per_step=len(calls) / step_count,
        median_s=float((calls["end_s"] - calls["begin_s"]).median()),
        predicted_s=trial.plan.predicted_collective_s(operation, size, dtype),
        gloo_fallback_share=float(calls["gloo_fallback_share"].mean()),
    )
