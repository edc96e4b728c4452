"""What replays are made of: what logs say, and what passes from one part of a run to the next."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from services.learning.data_order import RankWeights
from services.learning.datasets import TrainTestData
from services.learning.optimisers import OptimiserState
from services.plan import Plan
from services.schema.arrays import HostArray

Row: TypeAlias = Mapping[str, Any]  # of `shard_updates` or `shard_drops`, by column
Name: TypeAlias = tuple[int, int]  # of a push: worker and its number, which is a step where every step pushes


class Arrivals(NamedTuple):
    """What one shard has logged, in the order in which it did."""

    updates: Sequence[Row]
    drops: Sequence[Row]

    def between(self, first: float, end: float) -> "Arrivals":
        """Of pushes from number `first` on and before `end`."""
        return Arrivals(*([row for row in rows if first <= row["push_step"] < end] for rows in self))


class Course(NamedTuple):
    """What the order of arrival does not say: how far workers came, and where another strategy took over."""

    ends: Sequence[int]  # by rank: the step after the last one
    switched: int | None = None  # the first step of the strategy after, if it has taken over


class Model(NamedTuple):
    """Where a part of a run begins or ends."""

    params: HostArray  # shape (parameters,)
    state: OptimiserState  # the optimiser's; slots have the same shape
    version: int = 0  # updates that have made it


def gradient(
    plan: Plan, data: TrainTestData, params: HostArray, rank: int, step: int, shares: RankWeights | None = None
) -> tuple[HostArray, int]:
    """What a worker computed: the mean over its share of the batch, and the samples in it; equal shares by default."""
    share = plan.data_order.rank_sample_indices(step, rank, shares or (1,) * plan.workers)
    _, mean = plan.model.loss_and_grad(data.task, params, data.train_x[share], data.train_y[share])
    host: HostArray = mean
    return host, len(share)


def name(row: Row) -> Name:
    """Of the push that a row tells of."""
    return row["worker"], row["push_step"]


def by_version(updates: Sequence[Row]) -> list[list[Row]]:
    """The rows of each update, in order."""
    return [list(rows) for _, rows in groupby(updates, key=lambda row: row["version"])]


def reads(told: Arrivals) -> Iterator[tuple[Name, int]]:
    """Every push with the version that it was computed from."""
    yield from ((name(row), row["version"] - 1 - row["staleness"]) for row in told.updates)
    yield from ((name(row), row["version"] - row["staleness"]) for row in told.drops)
