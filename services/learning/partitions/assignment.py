"""Assignment of the training samples of a dataset to the workers of a trial."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from services.learning.datasets import DataSource
from services.learning.partitions import Partition, SampleParts


class PartSummary(NamedTuple):
    """Numbers of samples in the part of each worker; both are empty if workers share all samples."""

    sizes: tuple[int, ...] = ()  # by rank
    class_counts: tuple[tuple[int, ...], ...] = ()  # by rank and class; empty, too, for a regression


@lru_cache(maxsize=2)  # all workers of a simulated trial share one process
def assign_training_samples(partition: Partition, dataset: DataSource, worker_count: int) -> SampleParts:
    """Return the training samples that each worker owns, by rank; empty if workers share all samples."""
    if partition.shares_all_samples or worker_count == 1:
        return ()
    return partition.assign_samples(dataset.load("float32").train_y[:], worker_count)


@lru_cache(maxsize=64)
def summarise_parts(partition: Partition, dataset: DataSource, worker_count: int) -> PartSummary:
    """Return the numbers of samples, and of samples of each class, that each worker owns."""
    parts = assign_training_samples(partition, dataset, worker_count)
    if not parts:
        return PartSummary()
    data = dataset.load("float32")
    sizes, labels = tuple(map(len, parts)), data.train_y[:]
    if data.task.loss != "cross_entropy":
        return PartSummary(sizes)
    counts = (np.bincount(labels[part], minlength=data.task.outputs) for part in parts)
    return PartSummary(sizes, tuple(tuple(row.tolist()) for row in counts))
