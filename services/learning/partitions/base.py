"""Base class of partitions, which assign the training samples to workers."""

from abc import abstractmethod
from typing import ClassVar, TypeAlias

import numpy as np
from pydantic import Field

from services.learning.epoch_orders import SampleIndices
from services.schema.arrays import HostArray
from services.schema.component import ScenarioComponent

SampleParts: TypeAlias = tuple[SampleIndices, ...]  # ascending indices of the samples that each worker owns, by rank


class Partition(ScenarioComponent):
    """Base class of partitions of the training samples.

    A partition assigns every sample to exactly one worker. A single worker always uses all samples.
    """

    needs_classes: ClassVar[bool] = False  # whether it depends on the classes of the samples
    shares_all_samples: ClassVar[bool] = False  # whether no worker owns samples

    def worker_count_conflict(self, worker_count: int) -> str | None:  # noqa: ARG002 - most take any number
        """Return why the samples can't be assigned to `worker_count` workers; None if they can."""
        return None

    @abstractmethod
    def assign_samples(self, labels: HostArray, worker_count: int) -> SampleParts:
        """Return the samples that each worker owns; a part may be empty.

        The result is a pure function of the arguments and of the fields.

        Args:
            labels: class of each training sample; if the partition needs no classes, any array of that length.
            worker_count: number of workers.
        """


class OwningPartition(Partition):
    """Base class of partitions in which each worker owns a part of the samples, drawn at random."""

    seed: int = Field(default=0, ge=0, description="seed of the partition; equal for all repeats of a trial")

    def _create_generator(self) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(self.seed))
