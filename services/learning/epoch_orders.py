"""Orders of the samples within an epoch: one permutation of all samples, or block by block.

Each epoch has its own order, a pure function of seeds and epoch. `AnyEpochOrder` is the registry: each member of this
union can be named in a scenario by its `kind`.
"""

from abc import abstractmethod
from functools import lru_cache
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.schema.component import ScenarioComponent

SampleIndices: TypeAlias = npt.NDArray[np.int64]  # shape (n,), indices into the training samples
SHORT_PERMUTATION = 16_384  # numbers
Seeds: TypeAlias = tuple[int, ...]  # of one order: seed of the trial, epoch, and further numbers that are not 0


class EpochOrder(ScenarioComponent):
    """Base class of orders of the samples within an epoch."""

    @abstractmethod
    def select_samples(self, sample_count: int, seeds: Seeds, start: int, end: int) -> SampleIndices:
        """Return the samples at the positions from `start` to before `end` of the order of `sample_count` samples.

        The order is a permutation of the numbers from 0 to before `sample_count`, and a pure function of the arguments.
        """


class ShuffledOrder(EpochOrder):
    """One random permutation of all samples.

    A batch reads samples from everywhere in the data.
    """

    kind: Literal["shuffled"] = "shuffled"

    def select_samples(self, sample_count: int, seeds: Seeds, start: int, end: int) -> SampleIndices:
        return random_permutation(sample_count, seeds)[start:end]


class ShuffledBlocksOrder(EpochOrder):
    """Random order of blocks of consecutive samples, and a random order of the samples within each block.

    A batch reads samples from one or two blocks, so that data larger than the memory are read from the disk in long
    pieces, each once per epoch. Readers of sharded files shuffle in the same way, for example A. Aizman, G. Maltby,
    T. Breuel, "High performance I/O for large scale deep learning" (WebDataset), IEEE Big Data 2019. We differ: the
    samples of different blocks are never mixed.
    """

    kind: Literal["shuffled_blocks"] = "shuffled_blocks"
    block: int = Field(default=4096, gt=0, description="samples of a block; the last block may be smaller")

    def select_samples(self, sample_count: int, seeds: Seeds, start: int, end: int) -> SampleIndices:
        blocks, ends = _block_order(sample_count, self.block, seeds)
        first, last = np.searchsorted(ends, (start, end - 1), side="right")
        parts = [self._select_in_block(sample_count, seeds, block) for block in blocks[first : last + 1]]
        offset = start - (int(ends[first - 1]) if first else 0)
        return np.concatenate([*parts, np.empty(0, np.int64)])[offset : offset + end - start]

    def _select_in_block(self, sample_count: int, seeds: Seeds, block: int) -> SampleIndices:
        """Return all samples of a block in the order of an epoch."""
        first = int(block) * self.block
        return first + random_permutation(min(self.block, sample_count - first), (*seeds, int(block) + 1))


AnyEpochOrder: TypeAlias = Annotated[ShuffledOrder | ShuffledBlocksOrder, Field(discriminator="kind")]


def random_permutation(sample_count: int, seeds: Seeds) -> SampleIndices:
    """Return a random permutation of the numbers from 0 to before `sample_count`.

    The array is read-only, since all callers share it.
    """
    draw = _draw_short_permutation if sample_count <= SHORT_PERMUTATION else _draw_long_permutation
    return draw(sample_count, seeds)


def _draw_permutation(sample_count: int, seeds: Seeds) -> SampleIndices:
    order = np.random.Generator(np.random.PCG64([*seeds])).permutation(sample_count)
    order.setflags(write=False)
    return order


# Of long permutations, the current epoch and those of faster or slower workers in the same process are kept. Short ones
# are those of blocks and of parts of single workers.
_draw_long_permutation = lru_cache(maxsize=4)(_draw_permutation)
_draw_short_permutation = lru_cache(maxsize=64)(_draw_permutation)


@lru_cache(maxsize=4)
def _block_order(sample_count: int, block_size: int, seeds: Seeds) -> tuple[SampleIndices, SampleIndices]:
    """Return the blocks in the order of an epoch, and the position at which each of them ends."""
    blocks = random_permutation(-(-sample_count // block_size), seeds)
    sizes = np.minimum(block_size, sample_count - blocks * block_size)
    return blocks, np.cumsum(sizes)
