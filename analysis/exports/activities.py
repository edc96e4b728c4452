"""Split of training steps into activities, such as compute and exchange.

Begin and end of each activity are times on a clock that all nodes share.

Nodes log the duration of each phase of a step, but not the begin of the phase. Activities are therefore placed one
after another in the order of `ACTIVITY_ORDER`. The rest of a step is no activity, for example when a paced device waits
for its deadline.

A device that began to compute before its step, while the exchange before was under way, has the activities of the step
earlier by this time (`early_s`). The exposed exchange before ends there.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

ACTIVITY_ORDER = ("data", "compute", "wait", "exchange", "update")  # waiting ends before the exchange begins
ACTIVITY_COLUMNS = ("node", "rank", "step", "epoch", "samples", "bytes_sent", "activity", "begin_ns", "end_ns")
NS_PER_S = 1e9
TimestampsNs: TypeAlias = npt.NDArray[np.int64]  # nanoseconds since training began
MAX_ROUNDING_NS = 5_000  # logs round six times per step to microseconds: steps may overlap by this much


def split_steps_into_activities(step_rows: pd.DataFrame) -> pd.DataFrame:
    """Return a table with begin and end of each activity of each training step.

    An activity is, for example, compute or exchange.

    The columns are `ACTIVITY_COLUMNS`. Activities without duration are left out. Rows are sorted by rank and begin.
    Times are nanoseconds (int64) since training began. Activities of one node never overlap: an activity that reaches
    into the next step because of rounding is cut at the begin of the next step.
    """
    ordered = sort_steps_by_rank(step_rows)
    edges = np.minimum(_step_phase_edges_ns(ordered), _next_step_begins_ns(ordered)[:, None])
    begin, end = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    rows = ordered.loc[
        ordered.index.repeat(len(ACTIVITY_ORDER)), ["node", "rank", "step", "epoch", "samples", "bytes_sent"]
    ]
    rows = rows.assign(activity=list(ACTIVITY_ORDER) * len(ordered), begin_ns=begin, end_ns=end)
    return rows[end > begin].reset_index(drop=True)[list(ACTIVITY_COLUMNS)]


def count_overlapping_steps(step_rows: pd.DataFrame) -> int:
    """Return the number of training steps that overlap with the next step of the same node.

    A step overlaps if its last phase ends after the next step has begun.
    """
    ordered = sort_steps_by_rank(step_rows)
    return int((_step_phase_edges_ns(ordered)[:, -1] - MAX_ROUNDING_NS > _next_step_begins_ns(ordered)).sum())


def sort_steps_by_rank(step_rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of steps sorted by rank, node and begin."""
    sorted_steps: pd.DataFrame = step_rows.sort_values(["rank", "node", "start_s"], kind="stable")
    return sorted_steps.reset_index(drop=True)


def _step_phase_edges_ns(step_rows: pd.DataFrame) -> TimestampsNs:
    """Return the times (ns) at which each step begins and its phases end.

    The array has the shape (steps, phases + 1).

    An unlogged phase takes 0 ns.
    """
    seconds = step_rows[[f"{phase}_s" for phase in ACTIVITY_ORDER]].astype(float).fillna(0.0).to_numpy()
    starts = _activity_begins_s(step_rows).to_numpy()[:, None]
    edges = np.rint(NS_PER_S * np.hstack([starts, starts + np.cumsum(seconds, axis=1)])).astype(np.int64)
    return np.maximum(
        edges, 0
    )  # times are slightly negative where a node's clock is behind the clock that defines the begin of training


def _activity_begins_s(step_rows: pd.DataFrame) -> "pd.Series[float]":
    """Return the time (s) at which the first activity of each step begins."""
    begins_s: pd.Series[float] = step_rows["start_s"].astype(float)
    return begins_s - step_rows["early_s"].astype(float).fillna(0.0) if "early_s" in step_rows else begins_s


def _next_step_begins_ns(step_rows: pd.DataFrame) -> TimestampsNs:
    """Return for each step the time (ns) at which the same node begins its next step.

    For the last step of a node, the value is the largest int64.
    """
    starts = (NS_PER_S * _activity_begins_s(step_rows)).round().astype("int64")
    next_starts = starts.groupby(step_rows["node"], sort=False).shift(-1, fill_value=np.iinfo(np.int64).max)
    return np.asarray(next_starts, dtype=np.int64)
