"""Partition `shards`: each worker has the samples of a few classes."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from services.learning.data_order import split_proportionally
from services.learning.partitions.base import OwningPartition, SampleParts
from services.schema.arrays import HostArray


class ShardsPartition(OwningPartition):
    """Samples sorted by class, cut into pieces of equal size (shards), of which each worker gets a few at random.

    H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017:
    with two shards per worker, most workers have samples of two classes only. A shard of this partition has nothing to
    do with the shards of parameter servers.
    """

    kind: Literal["shards"] = "shards"
    per_worker: int = Field(default=2, gt=0, le=10_000, description="shards that each worker gets")
    needs_classes: ClassVar[bool] = True

    def assign_samples(self, labels: HostArray, worker_count: int) -> SampleParts:
        shard_count = worker_count * self.per_worker
        ends = np.cumsum(split_proportionally(len(labels), (1,) * shard_count))
        shards = np.split(np.argsort(labels, kind="stable"), ends[:-1])
        numbers_by_worker = self._create_generator().permutation(shard_count).reshape(worker_count, self.per_worker)
        return tuple(np.sort(np.concatenate([shards[number] for number in numbers])) for numbers in numbers_by_worker)
