"""Which systems are alike? K-means on three standardised features, with its silhouette and its stability.

K-means gives an answer whatever it is asked. So the number of clusters is the one of best silhouette (P. Rousseeuw,
1987) among all that are tried, all are shown, and runs from other seeds tell by the adjusted Rand index (L. Hubert,
P. Arabie, 1985) whether the clusters are there or only happened.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from threadpoolctl import threadpool_limits

from analysis.mlperf.references import Scaled

Features: TypeAlias = npt.NDArray[np.float64]  # shape (systems, 3)
Labels: TypeAlias = tuple[int, ...]  # of the cluster, by system

COUNTS = range(2, 7)  # of clusters that are tried
SEEDS = range(20)
STABLE = 0.9  # mean adjusted Rand index between seeds; 1 is the same clusters, 0 what chance gives


@dataclass(frozen=True)
class Partition:
    """Systems in k clusters."""

    k: int
    silhouette: float  # mean over systems, -1 to 1
    stability: float  # mean adjusted Rand index over all pairs of seeds, with one start each
    labels: Labels  # of the tightest of all starts; 0 holds the smallest systems

    @property
    def stable(self) -> bool:
        """Do other seeds find the same?"""
        return self.stability >= STABLE


@dataclass(frozen=True)
class Clustering:
    """The partitions that were tried, small k first."""

    partitions: tuple[Partition, ...]

    @property
    def best(self) -> Partition:
        """The one of largest silhouette."""
        return max(self.partitions, key=lambda each: each.silhouette)


def features(systems: Sequence[Scaled]) -> Features:
    """log2 N, log2 S and E', each with mean 0 and variance 1; a feature that never varies is 0.

    Logarithms, because unscaled counts would make a cluster of every giant.
    """
    raw = np.array(
        [(np.log2(each.result.accelerator_count), np.log2(each.speedup), each.efficiency) for each in systems]
    )
    spread = raw.std(axis=0)
    return np.asarray((raw - raw.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def cluster(systems: Sequence[Scaled], counts: Sequence[int] = COUNTS) -> Clustering | None:
    """The partitions into `counts` clusters; None where there are fewer than two different systems for each of two."""
    points = features(systems)
    different = len(np.unique(points, axis=0))
    with threadpool_limits(1):  # a few dozen points: more threads only wait for each other
        partitions = tuple(_partition(points, systems, k) for k in counts if 2 * k <= different)
    return Clustering(partitions) if partitions else None


def _partition(points: Features, systems: Sequence[Scaled], k: int) -> Partition:
    fits = [KMeans(k, n_init=1, random_state=seed).fit(points) for seed in SEEDS]
    tightest = min(fits, key=lambda fit: float(fit.inertia_))
    labelings = [_ordered(fit.labels_, systems) for fit in fits]
    labels = labelings[fits.index(tightest)]
    return Partition(k, float(silhouette_score(points, labels)), stability(labelings), labels)


def _ordered(labels: Sequence[int], systems: Sequence[Scaled]) -> Labels:
    """Labels by the mean log N of their cluster, so that equal partitions have equal labels on every host."""
    members: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        members.setdefault(label, []).append(place)
    sizes = np.log([each.result.accelerator_count for each in systems])
    order = sorted(members, key=lambda label: (float(sizes[members[label]].mean()), members[label]))
    return tuple(order.index(label) for label in labels)


def stability(labelings: Iterable[Labels]) -> float:
    """Mean adjusted Rand index over all pairs; those that are equal, which are most, have 1 without computing."""
    times = Counter(labelings)
    pairs = sum(times.values()) * (sum(times.values()) - 1) / 2
    equal = sum(count * (count - 1) / 2 for count in times.values())
    unequal = sum(
        times[one] * times[other] * float(adjusted_rand_score(one, other)) for one, other in combinations(times, 2)
    )
    return (equal + unequal) / pairs
