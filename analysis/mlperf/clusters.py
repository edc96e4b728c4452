"""Clusters of similar systems, found by k-means on three standardised features.

Each assignment to clusters has a silhouette and a stability. K-means finds clusters in any data. Several numbers of
clusters are therefore tried and shown. The chosen number has the largest mean silhouette (P. Rousseeuw, 1987). Fits
with different seeds are compared by the adjusted Rand index (L. Hubert, P. Arabie, 1985): a low index means that the
clusters depend on the seed.
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

from analysis.mlperf.references import ComparedResult

FeatureMatrix: TypeAlias = npt.NDArray[np.float64]  # shape (systems, 3)
ClusterLabels: TypeAlias = tuple[int, ...]  # number of the cluster of each system

CLUSTER_COUNTS = range(2, 7)  # numbers of clusters to try
KMEANS_SEEDS = range(20)
MIN_STABLE_RAND_INDEX = 0.9  # mean over pairs of seeds; 1: equal clusters, 0: agreement by chance


@dataclass(frozen=True)
class SystemClustering:
    """Assignment of systems to k clusters, with the quality of the assignment."""

    k: int
    silhouette: float  # mean over systems, -1 to 1
    stability: float  # mean adjusted Rand index over all pairs of seeds, with one start each
    labels: ClusterLabels  # from the seed with the least inertia; cluster 0 has the smallest systems

    @property
    def is_stable(self) -> bool:
        """Whether k-means fits with other seeds find nearly the same clusters."""
        return self.stability >= MIN_STABLE_RAND_INDEX

    def members(self, systems: Sequence[ComparedResult], label: int) -> list[ComparedResult]:
        """Return the systems of one cluster.

        `systems` are all clustered systems, in the order of `labels`.
        """
        return [system for system, own_label in zip(systems, self.labels, strict=True) if own_label == label]


@dataclass(frozen=True)
class SystemClusterings:
    """Assignments of the same systems to different numbers of clusters, for comparison.

    The numbers of clusters are two, three and more.
    """

    assignments: tuple[SystemClustering, ...]

    @property
    def best_by_silhouette(self) -> SystemClustering:
        """Assignment to clusters with the largest mean silhouette of all tried assignments."""
        return max(self.assignments, key=lambda each: each.silhouette)


def make_feature_matrix(systems: Sequence[ComparedResult]) -> FeatureMatrix:
    """Return the standardised features of each system as a matrix.

    The features are log2 of the number of accelerators, log2 of the speedup, and the efficiency, each with variance 1.
    Means are 0; a constant feature is 0. Without logarithms, each very large system would be its own cluster.
    """
    rows = [(np.log2(each.result.accelerator_count), np.log2(each.speedup), each.efficiency) for each in systems]
    raw = np.array(rows)
    spread = raw.std(axis=0)
    return np.asarray((raw - raw.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def cluster_by_k_means(
    systems: Sequence[ComparedResult], cluster_counts: Sequence[int] = CLUSTER_COUNTS
) -> SystemClusterings | None:
    """Partition systems by k-means, once for each number of clusters.

    Return None for fewer than four different systems.
    Numbers of clusters above half the number of different systems are left
    out.
    """
    points = make_feature_matrix(systems)
    different = len(np.unique(points, axis=0))
    with threadpool_limits(1):  # more threads do not help with a few dozen points
        partitions = tuple(_assign_clusters(points, systems, k) for k in cluster_counts if 2 * k <= different)
    return SystemClusterings(partitions) if partitions else None


def _assign_clusters(points: FeatureMatrix, systems: Sequence[ComparedResult], cluster_count: int) -> SystemClustering:
    fits = [KMeans(cluster_count, n_init=1, random_state=seed).fit(points) for seed in KMEANS_SEEDS]
    tightest = min(fits, key=lambda fit: float(fit.inertia_))
    labelings = [_relabel_clusters_by_size(fit.labels_, systems) for fit in fits]
    labels = labelings[fits.index(tightest)]
    return SystemClustering(cluster_count, float(silhouette_score(points, labels)), mean_rand_index(labelings), labels)


def _relabel_clusters_by_size(cluster_labels: Sequence[int], systems: Sequence[ComparedResult]) -> ClusterLabels:
    """Renumber clusters by the mean logarithm of the sizes of their systems.

    Equal clusters thus have equal labels on every host.
    """
    members: dict[int, list[int]] = {}
    for index, label in enumerate(cluster_labels):
        members.setdefault(label, []).append(index)
    sizes = np.log([each.result.accelerator_count for each in systems])
    order = sorted(members, key=lambda label: (float(sizes[members[label]].mean()), members[label]))
    return tuple(order.index(label) for label in cluster_labels)


def mean_rand_index(cluster_labelings: Iterable[ClusterLabels]) -> float:
    """Return the mean adjusted Rand index over all pairs of cluster labelings.

    The index is 1 if all labelings are equal.
    """
    count_of = Counter(cluster_labelings)
    pairs = sum(count_of.values()) * (sum(count_of.values()) - 1) / 2
    equal = sum(count * (count - 1) / 2 for count in count_of.values())  # the index of an equal pair is 1
    unequal = sum(count_of[a] * count_of[b] * float(adjusted_rand_score(a, b)) for a, b in combinations(count_of, 2))
    return (equal + unequal) / pairs
