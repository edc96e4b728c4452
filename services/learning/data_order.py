"""Order of the training samples by step and rank.

The order is a pure function of seed and step. So nodes never exchange positions, and a node that returns, or a strategy
after a switch, finds the same samples at the same step.
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.epoch_orders import AnyEpochOrder, SampleIndices, ShuffledOrder
from services.schema.component import FrozenRecord

RankWeights: TypeAlias = tuple[float, ...]  # one per rank, in any unit: only their ratios count


class DataOrder(FrozenRecord):
    """Order of the training samples in each epoch, and the number of samples of each rank in each step.

    Each epoch has all samples once, in a new order, cut into global batches. The last batch of an epoch may be smaller.
    If every rank owns a part of the samples, its share of a batch comes from its part and is proportional to the part's
    size. Otherwise the ranks share all samples.
    """

    samples: int = Field(gt=0)  # training samples of an epoch
    batch: int = Field(gt=0)  # samples of a global batch, of all ranks together
    seed: int = Field(ge=0)
    epoch_order: AnyEpochOrder = ShuffledOrder()
    part_sizes: tuple[int, ...] = ()  # number of samples that each rank owns; empty: ranks share all samples

    @property
    def steps_per_epoch(self) -> int:
        """Number of global batches in an epoch, including an incomplete last one."""
        return ceil(self.samples / self.batch)

    def batch_size(self, step: int) -> int:
        """Return the number of samples in the global batch of `step`."""
        return self.count_samples_before(step + 1) - self.count_samples_before(step)

    def count_samples_before(self, step: int) -> int:
        """Return the number of samples in all global batches before `step`."""
        epochs, position = divmod(step, self.steps_per_epoch)
        return epochs * self.samples + min(position * self.batch, self.samples)

    def share_sizes(self, step: int, batch_weights: RankWeights) -> tuple[int, ...]:
        """Return the number of samples that each rank processes at `step`; their sum is that of the global batch.

        Ranks that own a part of the samples take them from it, whatever the weights; other ranks share the batch in
        proportion to the weights.
        """
        if not self.part_sizes:
            return split_proportionally(self.batch_size(step), batch_weights)
        drawn = self._samples_drawn_in_epoch(step)
        return tuple((drawn[1] - drawn[0]).tolist())

    def select_sample_indices(
        self, step: int, worker_rank: int, batch_weights: RankWeights, owned_samples: SampleIndices | None = None
    ) -> SampleIndices:
        """Return the indices of the samples that `worker_rank` processes at `step`; there may be none.

        The shares of all ranks cover the batch without overlap; n equal shares have the weights `(1,) * n`.

        Args:
            step: counted from 0 over all epochs.
            worker_rank: rank of the worker.
            batch_weights: weights of the shares of all ranks.
            owned_samples: the samples that the rank owns; None if ranks share all samples.
        """
        if owned_samples is None:
            sizes = self.share_sizes(step, batch_weights)
            start = sum(sizes[:worker_rank])
            return self.batch_sample_indices(step)[start : start + sizes[worker_rank]]
        epoch, (start, end) = step // self.steps_per_epoch, self._samples_drawn_in_epoch(step)[:, worker_rank].tolist()
        seeds = (self.seed, epoch, worker_rank + 1)  # a zero at the end would not change the generator
        return owned_samples[self.epoch_order.select_samples(len(owned_samples), seeds, start, end)]

    def batch_sample_indices(self, step: int) -> SampleIndices:
        """Return the indices of the samples in the global batch of `step`, where ranks share all samples.

        Steps are counted from 0 over all epochs.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        start, end = position * self.batch, min((position + 1) * self.batch, self.samples)
        return self.epoch_order.select_samples(self.samples, (self.seed, epoch), start, end)

    def _samples_drawn_in_epoch(self, step: int) -> npt.NDArray[np.int64]:
        """Return the number of samples that each rank has drawn from its part before and after `step`, shape (2, n).

        Samples of earlier epochs do not count.
        """
        position = step % self.steps_per_epoch
        return count_drawn_samples(self.part_sizes, self.batch)[position : position + 2]


@lru_cache(maxsize=4)  # one per trial that runs in this process, or is planned
def count_drawn_samples(part_sizes: tuple[int, ...], batch: int) -> npt.NDArray[np.int64]:
    """Return the number of samples that each rank has drawn from its part before each step of an epoch.

    The shape is (steps + 1, ranks). After each step, the quota of a rank is its part's proportion of all samples drawn
    so far. A rank gets the whole samples that it lacks to its quota; the rest of the batch goes to the ranks that lack
    the largest remainders, lower ranks first. So no rank exceeds its quota by a whole sample, and after the last step
    every rank has drawn its whole part. (Rounding the quotas of each step alone could not guarantee that: a quota that
    is rounded up at one step may be rounded down at the next one, which would return a sample.)
    """
    sizes = np.array(part_sizes, np.int64)
    total = int(sizes.sum())
    drawn = np.zeros((ceil(total / batch) + 1, len(sizes)), np.int64)
    for step in range(len(drawn) - 1):
        end = min((step + 1) * batch, total)
        lacking = end * sizes - drawn[step] * total  # in units of 1 / total samples
        shares = np.maximum(lacking // total, 0)
        _correct_sum(shares, end - step * batch, lacking - shares * total)
        drawn[step + 1] = drawn[step] + shares
    drawn.setflags(write=False)
    return drawn


def _correct_sum(shares: npt.NDArray[np.int64], required_sum: int, remainders: npt.NDArray[np.int64]) -> None:
    """Change shares by single samples until their sum is `required_sum`.

    Ranks with the largest remainders get a sample more, those with the smallest remainders one less.
    """
    missing = max(0, required_sum - int(shares.sum()))
    shares[np.argsort(-remainders, kind="stable")[:missing]] += 1
    while excess := int(shares.sum()) - required_sum:  # because ranks above their quota get no negative share
        reducible = np.flatnonzero(shares)
        shares[reducible[np.argsort(remainders[reducible], kind="stable")[:excess]]] -= 1


@lru_cache(maxsize=64)  # full and last batches, for the weights in use
def split_proportionally(total: int, weights: RankWeights) -> tuple[int, ...]:
    """Split the integer `total` into integers proportional to `weights`.

    The method is that of the largest remainder (Hamilton). Lower ranks win ties. Every part is its exact quota rounded
    down or up. Quotas are fractions, so that the parts add up to `total` exactly.
    """
    exact_weights = [Fraction(weight) for weight in weights]
    weight_sum = sum(exact_weights)
    quotas = [total * weight / weight_sum for weight in exact_weights]
    remaining = total - sum(map(int, quotas))
    rounded_up = sorted(range(len(quotas)), key=lambda rank: int(quotas[rank]) - quotas[rank])[:remaining]
    return tuple(int(quota) + (rank in rounded_up) for rank, quota in enumerate(quotas))
