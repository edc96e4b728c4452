"""What did a worker do from when to when? Steps cut into activities, on the one clock that all nodes share.

Nodes log how long each phase of a step took, not when it began; within a step phases come in the order of ORDER. What
is left of a step after them (a paced device that waits for its deadline) is no activity.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

ORDER = ("data", "compute", "wait", "exchange", "update")  # a worker waits before what it waits for can arrive
COLUMNS = ("node", "rank", "step", "epoch", "samples", "bytes_sent", "activity", "begin_ns", "end_ns")
NS = 1e9
Stamps: TypeAlias = npt.NDArray[np.int64]  # nanoseconds since training began
ROUNDED_NS = 5_000  # logs hold microseconds: so much may a step of six numbers reach into the next


def activities(steps: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS, a row per activity that took time, by rank and begin; nanoseconds (int64) since training began.

    Activities of one node never overlap: what rounding made reach into the next step ends where that begins.
    """
    ordered = by_step(steps)
    edges = np.minimum(_edges_ns(ordered), _next_begin_ns(ordered)[:, None])
    begin, end = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    rows = ordered.loc[ordered.index.repeat(len(ORDER)), ["node", "rank", "step", "epoch", "samples", "bytes_sent"]]
    rows = rows.assign(activity=list(ORDER) * len(ordered), begin_ns=begin, end_ns=end)
    return rows[end > begin].reset_index(drop=True)[list(COLUMNS)]


def overfull(steps: pd.DataFrame) -> int:
    """How many steps have phases that together reach into the next step, by more than logs round."""
    ordered = by_step(steps)
    return int((_edges_ns(ordered)[:, -1] - ROUNDED_NS > _next_begin_ns(ordered)).sum())


def by_step(steps: pd.DataFrame) -> pd.DataFrame:
    """In the order in which each worker did them."""
    in_order: pd.DataFrame = steps.sort_values(["rank", "node", "start_s"], kind="stable")
    return in_order.reset_index(drop=True)


def _edges_ns(ordered: pd.DataFrame) -> Stamps:
    """Where phases begin and end, shape (steps, phases + 1); a phase that was not logged takes no time."""
    seconds = ordered[[f"{phase}_s" for phase in ORDER]].astype(float).fillna(0.0).to_numpy()
    starts = ordered["start_s"].astype(float).to_numpy()[:, None]
    edges = np.rint(NS * np.hstack([starts, starts + np.cumsum(seconds, axis=1)])).astype(np.int64)
    return np.maximum(edges, 0)  # a clock may be some microseconds behind the one that says when training began


def _next_begin_ns(ordered: pd.DataFrame) -> Stamps:
    """When the next step of the same node begins; the end of time for its last."""
    starts = (NS * ordered["start_s"].astype(float)).round().astype("int64")
    after = starts.groupby(ordered["node"], sort=False).shift(-1, fill_value=np.iinfo(np.int64).max)
    return np.asarray(after, dtype=np.int64)
