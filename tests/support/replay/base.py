"""Records used by all replays: arrivals from the logs, progress of a trial, and the model between two phases."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from services.learning.data_order import RankWeights
from services.learning.datasets import TrainTestData
from services.learning.optimisers import OptimiserState
from services.learning.partitions.assignment import assign_training_samples
from services.plan import Plan
from services.schema.arrays import HostArray

Row: TypeAlias = Mapping[str, Any]  # of `shard_updates` or `shard_drops`, by column
PushId: TypeAlias = tuple[int, int]  # worker and number of the push; the number is the step where every step pushes


class ShardArrivals(NamedTuple):
    """Pushes that one shard has logged, in the order of the log."""

    updates: Sequence[Row]
    drops: Sequence[Row]

    def between(self, first: float, end: float) -> "ShardArrivals":
        """Return the pushes with numbers from `first` to before `end`."""
        return ShardArrivals(*([row for row in rows if first <= row["push_step"] < end] for rows in self))


class TrialProgress(NamedTuple):
    """Facts that are not in the logs of the shards: the number of steps per worker, and the step of the switch."""

    end_steps: Sequence[int]  # by rank: the step after the last one
    switch_step: int | None = None  # the first step of the second phase, None if there was no switch


class Model(NamedTuple):
    """Model at the start or at the end of a phase."""

    params: HostArray  # shape (parameters,)
    state: OptimiserState  # its slots have the same shape
    version: int = 0  # number of updates
    samples: int = 0  # used for these updates


def gradient(
    plan: Plan, data: TrainTestData, params: HostArray, rank: int, step: int, shares: RankWeights | None = None
) -> tuple[HostArray, int]:
    """Return the mean gradient over the samples of a worker's share, and their number; shares are equal by default."""
    parts = assign_training_samples(plan.partition, plan.dataset, plan.workers)
    weights, owned = shares or (1,) * plan.workers, parts[rank] if parts else None
    share = plan.data_order.select_sample_indices(step, rank, weights, owned)
    _, mean = plan.model.loss_and_grad(data.task, params, data.train_x[share], data.train_y[share])
    host: HostArray = mean
    return host, len(share)


def push_id(row: Row) -> PushId:
    """Return the worker and the number of the push that a row describes."""
    return row["worker"], row["push_step"]


def rows_by_version(updates: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each update, in order."""
    return [list(rows) for _, rows in groupby(updates, key=lambda row: row["version"])]


def versions_read(arrivals: ShardArrivals) -> Iterator[tuple[PushId, int]]:
    """Yield every push with the version that it was computed from."""
    yield from ((push_id(row), row["version"] - 1 - row["staleness"]) for row in arrivals.updates)
    yield from ((push_id(row), row["version"] - row["staleness"]) for row in arrivals.drops)
