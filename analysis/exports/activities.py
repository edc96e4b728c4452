"""Training steps of workers, split into activities with begin and end, on one clock for all nodes.

Nodes log how long each phase of a step took, not when it began. Within a step, phases come in the order of
`ACTIVITY_ORDER`. Time that is left at the end of a step, as on a paced device that waits for its deadline, is no
activity.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

ACTIVITY_ORDER = ("data", "compute", "wait", "exchange", "update")  # waiting ends before the exchange begins
ACTIVITY_COLUMNS = ("node", "rank", "step", "epoch", "samples", "bytes_sent", "activity", "begin_ns", "end_ns")
NS_PER_S = 1e9
TimestampsNs: TypeAlias = npt.NDArray[np.int64]  # nanoseconds since training began
MAX_ROUNDING_NS = 5_000  # logs round to microseconds: the six numbers of a step may overlap the next step by this much


def split_into_activities(steps: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the columns `ACTIVITY_COLUMNS` and one row per activity that took time.

    Rows are sorted by rank and begin. Times are nanoseconds (int64) since training began. Activities of one node never
    overlap: an activity that rounding extends into the next step ends where that step begins.
    """
    ordered = sort_steps(steps)
    edges = np.minimum(_activity_edges_ns(ordered), _next_step_begins_ns(ordered)[:, None])
    begin, end = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    rows = ordered.loc[
        ordered.index.repeat(len(ACTIVITY_ORDER)), ["node", "rank", "step", "epoch", "samples", "bytes_sent"]
    ]
    rows = rows.assign(activity=list(ACTIVITY_ORDER) * len(ordered), begin_ns=begin, end_ns=end)
    return rows[end > begin].reset_index(drop=True)[list(ACTIVITY_COLUMNS)]


def count_overlong_steps(steps: pd.DataFrame) -> int:
    """Return the number of steps whose phases overlap the next step by more than the rounding of logs explains."""
    ordered = sort_steps(steps)
    return int((_activity_edges_ns(ordered)[:, -1] - MAX_ROUNDING_NS > _next_step_begins_ns(ordered)).sum())


def sort_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps sorted by rank and begin."""
    sorted_steps: pd.DataFrame = steps.sort_values(["rank", "node", "start_s"], kind="stable")
    return sorted_steps.reset_index(drop=True)


def _activity_edges_ns(steps: pd.DataFrame) -> TimestampsNs:
    """Return begin and end of all phases, shape (steps, phases + 1). A phase that was not logged takes no time."""
    seconds = steps[[f"{phase}_s" for phase in ACTIVITY_ORDER]].astype(float).fillna(0.0).to_numpy()
    starts = steps["start_s"].astype(float).to_numpy()[:, None]
    edges = np.rint(NS_PER_S * np.hstack([starts, starts + np.cumsum(seconds, axis=1)])).astype(np.int64)
    return np.maximum(
        edges, 0
    )  # a node's clock may be some microseconds behind the clock that defines the begin of training


def _next_step_begins_ns(steps: pd.DataFrame) -> TimestampsNs:
    """Return when the next step of the same node begins; for its last step the largest int64."""
    starts = (NS_PER_S * steps["start_s"].astype(float)).round().astype("int64")
    next_starts = starts.groupby(steps["node"], sort=False).shift(-1, fill_value=np.iinfo(np.int64).max)
    return np.asarray(next_starts, dtype=np.int64)
