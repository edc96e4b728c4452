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
    q is restricted to the other classes. We add: if q has no class left, the worker draws a new q over the classes that
    have samples; all samples are used, and the workers draw one after the other in a random order; the last ones get
    what is left, which may differ from their q.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(default=0.5, gt=0, le=1e6, description="concentration α; the smaller, the more uneven")
    needs_classes: ClassVar[bool] = True

    def assign_samples(self, labels: HostArray, worker_count: int) -> SampleParts:
        rng = self._create_generator()
        queues = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
        class_sizes = np.array([len(queue) for queue in queues])
        left = class_sizes.copy()
        sizes = split_proportionally(len(labels), (1,) * worker_count)
        parts = {}
        for rank in rng.permutation(worker_count).tolist():
            counts = self._draw_class_counts(rng, sizes[rank], left, class_sizes)
            left -= counts
            drawn = [queue[rest : rest + count] for queue, rest, count in zip(queues, left, counts, strict=True)]
            parts[rank] = np.sort(np.concatenate(drawn))
        return tuple(parts[rank] for rank in range(worker_count))

    def _draw_class_counts(
        self, rng: np.random.Generator, part_size: int, left: HostArray, class_sizes: HostArray
    ) -> HostArray:
        """Return how many samples of each class a worker draws without replacement.

        Args:
            rng: source of random numbers.
            part_size: number of samples of the worker.
            left: number of samples of each class that no worker owns yet.
            class_sizes: number of all samples of each class.
        """
        counts = np.zeros_like(left)
        mix = np.zeros(len(left))
        while missing := part_size - counts.sum():
            available = left - counts
            weights = np.where(available > 0, mix, 0.0)
            if weights.sum() <= 0:
                mix = self._draw_mix(rng, np.where(available > 0, class_sizes, 0))
                continue
            drawn = rng.multinomial(missing, weights / weights.sum())
            counts += np.minimum(drawn, available)
        return counts

    def _draw_mix(self, rng: np.random.Generator, class_sizes: HostArray) -> HostArray:
        """Return proportions q from Dir(α·p), over the classes with a size above zero; shape (classes,)."""
        mix, has_samples = np.zeros(len(class_sizes)), class_sizes > 0
        mix[has_samples] = rng.dirichlet(self.alpha * class_sizes[has_samples] / class_sizes.sum())
        return mix
