"""Batches of a case, which are the same for Ensayo and for PyTorch."""

from collections.abc import Iterator
from itertools import cycle
from typing import Literal, TypeAlias

from benchmarks.compute.cases import ComputeCase
from services.learning.datasets import TrainTestData
from services.learning.randomness import BatchRandomness
from services.schema.arrays import HostArray

FloatType: TypeAlias = Literal["float32", "float64"]
DISTINCT_BATCHES = 8  # training repeats them
SEED = 0


def training_batches(case: ComputeCase, data: TrainTestData) -> Iterator[tuple[HostArray, HostArray, BatchRandomness]]:
    """Yield samples, targets and seeds of random numbers of one step after the other, without end."""
    starts = range(0, len(data.train_x) - case.batch + 1, case.batch)[:DISTINCT_BATCHES]
    parts = [slice(start, start + case.batch) for start in starts]
    for step, part in enumerate(cycle(parts)):
        yield data.train_x[part], data.train_y[part], BatchRandomness(SEED, step)
