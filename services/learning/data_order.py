"""Which samples does a rank see at a step, and how good are outputs?

The order of the data is a pure function of (seed, step): no node tells another where it is, and a node that comes back,
or a strategy that switches, finds the same samples at the same step.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.datasets.base import Task
from services.schema.arrays import Array, namespace
from services.schema.component import Record

Indices: TypeAlias = npt.NDArray[np.int64]  # shape (n,), into the training samples
Weights: TypeAlias = tuple[float, ...]  # one per rank, in any unit: only their ratios count


class Order(Record):
    """Every epoch is a new permutation of all samples, cut into global batches; the last one may be smaller."""

    samples: int = Field(gt=0)
    batch: int = Field(gt=0)  # samples of a global batch, all ranks together
    seed: int = Field(ge=0)

    @property
    def steps_per_epoch(self) -> int:
        """Global batches of an epoch, the last incomplete one included."""
        return ceil(self.samples / self.batch)

    def indices(self, step: int) -> Indices:
        """The samples of global step `step`, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        return permutation(self.samples, self.seed, epoch)[position * self.batch : (position + 1) * self.batch]

    def before(self, step: int) -> int:
        """Samples of all global steps before `step`."""
        epochs, position = divmod(step, self.steps_per_epoch)
        return epochs * self.samples + min(position * self.batch, self.samples)

    def share(self, step: int, rank: int, weights: Weights) -> Indices:
        """The part of `indices(step)` that belongs to `rank`: contiguous, as long as its weight says, perhaps empty.

        The shares of all ranks follow each other without gap or overlap; equal shares among n ranks are `(1,) * n`.
        """
        batch = self.indices(step)
        counts = apportion(len(batch), weights)
        start = sum(counts[:rank])
        return batch[start : start + counts[rank]]


@lru_cache(maxsize=4)  # the current epoch, and those of workers ahead or behind in the same process
def permutation(samples: int, seed: int, epoch: int) -> Indices:
    """The order of all samples in `epoch`; read-only, since callers share it."""
    order = np.random.Generator(np.random.PCG64([seed, epoch])).permutation(samples)
    order.setflags(write=False)
    return order


@lru_cache(maxsize=64)  # full and last batches, for the weights in force
def apportion(total: int, weights: Weights) -> tuple[int, ...]:
    """Cut `total` into whole parts proportional to `weights` by largest remainder (Hamilton); lower ranks win ties.

    Every part is its exact quota rounded down or up. Fractions, because the parts must add up to `total` exactly.
    """
    exact = [Fraction(weight) for weight in weights]
    quotas = [total * weight / sum(exact) for weight in exact]
    left = total - sum(map(int, quotas))
    winners = sorted(range(len(quotas)), key=lambda rank: int(quotas[rank]) - quotas[rank])[:left]
    return tuple(int(quota) + (rank in winners) for rank, quota in enumerate(quotas))


def metrics(task: Task, outputs: Array, targets: Array) -> dict[str, float]:
    """Quality of `outputs` (n, outputs): `accuracy` of classes; `mae`, `mse` and `r2` of numbers. n is at least 1."""
    return _METRICS[task.loss](outputs, targets)


def _classification(scores: Array, labels: Array) -> dict[str, float]:
    return {"accuracy": float((scores.argmax(axis=1) == labels).mean())}


def _regression(outputs: Array, targets: Array) -> dict[str, float]:
    """r2 = mean over outputs of 1 - residual/total sum of squares; a constant output counts 1 if hit, else 0."""
    xp, error = namespace(outputs), outputs - targets
    residual = (error**2).sum(axis=0)
    total = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    r2 = xp.where(total > 0, 1 - residual / xp.where(total > 0, total, 1), residual == 0)
    return {"mae": float(abs(error).mean()), "mse": float((error**2).mean()), "r2": float(r2.mean())}


_METRICS: dict[str, Callable[[Array, Array], dict[str, float]]] = {
    "cross_entropy": _classification,
    "mse": _regression,
}
