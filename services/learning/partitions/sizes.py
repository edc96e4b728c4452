"""Partition `sizes`: workers own parts of different sizes."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from services.learning.data_order import split_proportionally
from services.learning.partitions.base import OwningPartition, SampleParts
from services.schema.arrays import HostArray


class SizesPartition(OwningPartition):
    """Random parts of declared sizes: workers have nearly equal mixes of classes, but unequal numbers of samples."""

    kind: Literal["sizes"] = "sizes"
    shares: tuple[Annotated[float, Field(gt=0, le=1e9)], ...] = Field(
        min_length=1, description="size of each worker's part, by rank, in any unit: only their ratios count"
    )

    def worker_count_conflict(self, worker_count: int) -> str | None:
        if worker_count in (1, len(self.shares)):  # the single worker of a baseline owns all samples
            return None
        return f"shares has {len(self.shares)} values, but there are {worker_count} workers; write one value per worker"

    def assign_samples(self, labels: HostArray, worker_count: int) -> SampleParts:  # noqa: ARG002 - one share per worker
        ends = np.cumsum(split_proportionally(len(labels), self.shares))
        shuffled = self._create_generator().permutation(len(labels))
        return tuple(np.sort(part) for part in np.split(shuffled, ends[:-1]))
