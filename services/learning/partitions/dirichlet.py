"""Partition `dirichlet`: each worker has its own random mix of classes."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from services.learning.data_order import split_proportionally
from services.learning.partitions.base import OwningPartition, SampleParts
from services.schema.arrays import HostArray


class DirichletPartition(OwningPartition):
    """Parts of equal size, whose proportions of classes are drawn from a Dirichlet distribution.

    T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019: each worker draws proportions q from Dir(α·p), where p are the proportions of the classes in
    all samples, and then draws the samples of its part without replacement from the classes in the proportions q. A
    small α gives workers few classes, a large α gives all workers nearly equal mixes. When a class has no samples left,
    q is restricted to the other classes. We add: all samples are used, and the workers draw one after the other in a
    random order; the last ones get what is left, which may differ from their q.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(default=0.5, gt=0, le=1e6, description="concentration α; the smaller, the more uneven")
    needs_classes: ClassVar[bool] = True

    def assign_samples(self, labels: HostArray, worker_count: int) -> SampleParts:
        rng = self._create_generator()
        queues = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
        left = np.array([len(queue) for queue in queues])
        sizes = split_proportionally(len(labels), (1,) * worker_count)
        mixes = rng.dirichlet(self.alpha * left / left.sum(), worker_count)
        parts = {}
        for rank in rng.permutation(worker_count).tolist():
            counts = _draw_class_counts(rng, mixes[rank], sizes[rank], left)
            left -= counts
            drawn = [queue[rest : rest + count] for queue, rest, count in zip(queues, left, counts, strict=True)]
            parts[rank] = np.sort(np.concatenate(drawn))
        return tuple(parts[rank] for rank in range(worker_count))


def _draw_class_counts(rng: np.random.Generator, mix: HostArray, part_size: int, left: HostArray) -> HostArray:
    """Return how many samples of each class a worker draws without replacement.

    Args:
        rng: source of random numbers.
        mix: proportions of the classes that the worker draws from.
        part_size: number of samples of the worker.
        left: number of samples of each class that no worker owns yet.
    """
    counts = np.zeros_like(left)
    while missing := part_size - counts.sum():
        available = left - counts
        weights = np.where(available > 0, mix, 0.0)
        if weights.sum() <= 0:
            weights = available.astype(float)
        drawn = rng.multinomial(missing, weights / weights.sum())
        counts += np.minimum(drawn, available)
    return counts
