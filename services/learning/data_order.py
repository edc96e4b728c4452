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

from services.schema.component import FrozenRecord

SampleIndices: TypeAlias = npt.NDArray[np.int64]  # shape (n,), indices into the training samples
RankWeights: TypeAlias = tuple[float, ...]  # one per rank, in any unit: only their ratios count


class DataOrder(FrozenRecord):
    """Order of the training samples in each epoch.

    Each epoch is a new permutation of all samples, cut into global batches. The last batch of an epoch may be smaller.
    """

    samples: int = Field(gt=0)  # training samples of an epoch
    batch: int = Field(gt=0)  # samples of a global batch, of all ranks together
    seed: int = Field(ge=0)

    @property
    def steps_per_epoch(self) -> int:
        """Number of global batches in an epoch, including an incomplete last one."""
        return ceil(self.samples / self.batch)

    def batch_sample_indices(self, step: int) -> SampleIndices:
        """Return the indices of the samples in the global batch of `step`.

        Steps are counted from 0 over all epochs.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        return epoch_permutation(self.samples, self.seed, epoch)[position * self.batch : (position + 1) * self.batch]

    def batch_size(self, step: int) -> int:
        """Return the number of samples in the global batch of `step`."""
        return self.count_samples_before(step + 1) - self.count_samples_before(step)

    def count_samples_before(self, step: int) -> int:
        """Return the number of samples in all global batches before `step`."""
        epochs, position = divmod(step, self.steps_per_epoch)
        return epochs * self.samples + min(position * self.batch, self.samples)

    def select_sample_indices(self, step: int, worker_rank: int, batch_weights: RankWeights) -> SampleIndices:
        """Return the indices of the samples that `worker_rank` processes at `step`.

        They are a contiguous part of the global batch, in proportion to the weight of the rank, and may be empty. The
        parts of all ranks cover the batch without overlap; n equal parts have the weights `(1,) * n`.
        """
        batch = self.batch_sample_indices(step)
        counts = split_proportionally(len(batch), batch_weights)
        start = sum(counts[:worker_rank])
        return batch[start : start + counts[worker_rank]]


@lru_cache(maxsize=4)  # the current epoch, and those of faster or slower workers in the same process
def epoch_permutation(sample_count: int, seed: int, epoch: int) -> SampleIndices:
    """Return the order of all samples in the epoch `epoch`.

    The array is read-only, since all callers share it.
    """
    order = np.random.Generator(np.random.PCG64([seed, epoch])).permutation(sample_count)
    order.setflags(write=False)
    return order


@lru_cache(maxsize=64)  # full and last batches, for the weights in use
def split_proportionally(total: int, weights: RankWeights) -> tuple[int, ...]:
    """Split the integer `total` into integers proportional to `weights`.

    The method is that of the largest remainder (Hamilton). Lower ranks win ties. Every part is its exact quota rounded
    down or up. Quotas are fractions, so that the parts add up to `total` exactly.
    """
    exact_weights = [Fraction(weight) for weight in weights]
    quotas = [total * weight / sum(exact_weights) for weight in exact_weights]
    remaining = total - sum(map(int, quotas))
    rounded_up = sorted(range(len(quotas)), key=lambda rank: int(quotas[rank]) - quotas[rank])[:remaining]
    return tuple(int(quota) + (rank in rounded_up) for rank, quota in enumerate(quotas))
