"""Random numbers of a compressor: a function of its seed and of the number of the vector."""

from typing import Any, NamedTuple

import numpy as np

from services.compressors.base import CompressorSeed
from services.schema.arrays import Array, Vector, array_namespace

RANDOM_BITS = 16  # of the random number for each entry
SPAWN_KEY = (0xC0DE,)  # other numbers than dropout and noise draw from the same seeds


class VectorRandomness(NamedTuple):
    """Seed of the random numbers for one vector: equal numbers for equal seeds and vector numbers.

    It is the state of a compressor that draws random numbers.
    """

    seed: CompressorSeed
    vector_number: int = 0  # vectors compressed before

    def create_generator(self, array: Array) -> Any:
        """Return a new random generator of the library of `array`. NumPy and CuPy draw different numbers."""
        return array_namespace(array).random.default_rng(self._generate_seed(*self.seed))

    def create_shared_seed(self) -> int:
        """Return a seed of 64 bits that all senders of the trial have for the vector with this number."""
        return self._generate_seed(self.seed.trial_seed)

    def advance(self) -> "VectorRandomness":
        """Return the randomness of the next vector."""
        return self._replace(vector_number=self.vector_number + 1)

    def _generate_seed(self, *parts: int) -> int:
        (seed,) = np.random.SeedSequence((*parts, self.vector_number), spawn_key=SPAWN_KEY).generate_state(1, np.uint64)
        return int(seed)


def draw_offsets(generator: Any, count: int) -> Vector:
    """Return random whole numbers from -2¹⁵ to 2¹⁵ - 1, of the type int16, two from each draw of the generator."""
    return generator.integers(0, 1 << 32, size=-(-count // 2), dtype="uint32").view("int16")[:count]
