"""K-means clusters of systems: clear clusters are found, and unstable ones are marked as unstable."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from analysis.mlperf.clusters import cluster_by_k_means, make_feature_matrix, mean_rand_index
from analysis.mlperf.reading.results import MlperfResult, read_results_csv
from analysis.mlperf.references import ComparedResult, pair_with_reference
from analysis.mlperf.study import make_mlperf_study


def systems(*sizes: tuple[int, float]) -> tuple[ComparedResult, ...]:
    """Systems of so many accelerators and minutes; the first one is the reference."""
    rows = [
        MlperfResult(
            benchmark="b", submitter="s", system=str(index), accelerator="a", accelerator_count=count, minutes=took
        )
        for index, (count, took) in enumerate(sizes)
    ]
    return pair_with_reference(rows, rows[0])


THREE_GROUPS = [*((4, 60 + index) for index in range(5)), *((64, 4 + index / 50) for index in range(5))]
THREE_GROUPS += [*((1024, 2.5 + index / 50) for index in range(5))]


def test_three_kinds_of_systems_are_three_stable_clusters_from_small_to_large() -> None:
    """Clear clusters are found and numbered by size."""
    clustering = cluster_by_k_means(systems(*THREE_GROUPS))

    assert clustering is not None
    assert clustering.best_by_silhouette.k == 3
    assert clustering.best_by_silhouette.labels == (0,) * 5 + (1,) * 5 + (2,) * 5
    assert clustering.best_by_silhouette.silhouette > 0.9


def test_systems_without_clusters_are_called_unstable() -> None:
    """Twenty systems along a line are clustered differently with every seed."""
    clustering = cluster_by_k_means(systems(*((2**place, 1000 / 2 ** (0.8 * place)) for place in range(20))))

    assert clustering is not None
    assert [assignment.k for assignment in clustering.assignments] == [2, 3, 4, 5, 6]
    assert not all(assignment.is_stable for assignment in clustering.assignments)


def test_two_of_the_four_shipped_workloads_have_stable_clusters() -> None:
    """Seeds are fixed, so the result does not depend on the host."""
    clusterings = {
        workload.benchmark: cluster_by_k_means(workload.systems)
        for workload in make_mlperf_study(read_results_csv()).workloads
    }

    stability = {name: each.best_by_silhouette.is_stable for name, each in clusterings.items() if each}
    assert stability == {
        "bert": True, "llama2_70b_lora": False, "ssd": False, "stable_diffusion": True,
    }  # fmt: skip


def test_features_are_standardised_and_a_constant_feature_is_zero() -> None:
    """Counts and E' get equal weight, however many orders of magnitude they span."""
    points = make_feature_matrix(systems(*THREE_GROUPS))

    assert points.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-12)
    assert points.std(axis=0) == pytest.approx(np.ones(3))
    assert not make_feature_matrix(systems((8, 5.0), (8, 4.0), (8, 3.0)))[:, 0].any()


@pytest.mark.parametrize("sizes", [[(8, 5.0)], [(8, 5.0), (8, 5.0)], [(8, 5.0), (16, 3.0)]])
def test_too_few_different_systems_have_no_clusters(sizes: list[tuple[int, float]]) -> None:
    """Two systems in two clusters have no silhouette; other rounds have workloads with three."""
    assert cluster_by_k_means(systems(*sizes)) is None


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 5), min_size=2, max_size=8))
@settings(max_examples=30)
def test_stability_is_the_mean_rand_index_over_all_pairs(labelings: list[tuple[int, ...]]) -> None:
    """Equal partitions are counted without computing; that must not change the mean."""
    pairs = [
        adjusted_rand_score(first, second) for index, first in enumerate(labelings) for second in labelings[index + 1 :]
    ]

    assert mean_rand_index(labelings) == pytest.approx(np.mean(pairs))
