"""Random numbers of a training step, such as dropout masks and noise.

They are a function of seed, step and rank. So a step that is computed again gives the same gradient, and workers draw
different numbers without communication.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from services.schema.arrays import Array, array_namespace


class BatchRandomness(NamedTuple):
    """Seeds of the random numbers that one worker draws for its share of one batch."""

    seed: int = 0  # of the trial
    step: int = 0
    rank: int = 0
    micro_batch: int = 0  # number of the part of the share, where a worker computes its share in parts

    def create_generator(self, array: Array) -> Any:
        """Return a new random generator of the library of `array`, NumPy or CuPy.

        Every call returns a generator that draws the same numbers. NumPy and CuPy draw different numbers.
        """
        (seed,) = np.random.SeedSequence(self._numbers).generate_state(1, np.uint64)
        return array_namespace(array).random.default_rng(int(seed))

    def create_seed(self) -> int:
        """Return a seed of 64 bits for another library: a digest, since NumPy takes ten times longer to mix seeds."""
        return int.from_bytes(blake2b(repr(self._numbers).encode(), digest_size=8).digest(), "little")

    @property
    def _numbers(self) -> tuple[int, ...]:
        """Numbers that determine the seed; the first part draws the numbers of an undivided share."""
        return (self.seed, self.step, self.rank, *([self.micro_batch] if self.micro_batch else ()))


DEFAULT_RANDOMNESS = BatchRandomness()  # of compute that belongs to no training step, such as an evaluation
