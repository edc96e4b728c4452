"""K-means: it finds what is there, and says when nothing is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from analysis.mlperf.clusters import cluster_systems, make_feature_matrix, mean_rand_index
from analysis.mlperf.reading.results import MlperfResult, read_results_csv
from analysis.mlperf.references import ComparedResult, compare_with_reference
from analysis.mlperf.study import make_study


def systems(*sizes: tuple[int, float]) -> tuple[ComparedResult, ...]:
    """Systems of so many accelerators and minutes; the first one is the reference."""
    rows = [
        MlperfResult(
            benchmark="b", submitter="s", system=str(place), accelerator="a", accelerator_count=count, minutes=took
        )
        for place, (count, took) in enumerate(sizes)
    ]
    return compare_with_reference(rows, rows[0])


THREE = [*((4, 60 + index) for index in range(5)), *((64, 4 + index / 50) for index in range(5))]
THREE += [*((1024, 2.5 + index / 50) for index in range(5))]


def test_three_kinds_of_systems_are_three_stable_clusters_from_small_to_large() -> None:
    """Where clusters are plain to see, they are found and numbered by size."""
    found = cluster_systems(systems(*THREE))

    assert found is not None
    assert found.best_assignment.k == 3
    assert found.best_assignment.labels == (0,) * 5 + (1,) * 5 + (2,) * 5
    assert found.best_assignment.silhouette > 0.9


def test_systems_without_clusters_are_called_unstable() -> None:
    """Twenty systems evenly strung along a line fall apart differently with every seed."""
    found = cluster_systems(systems(*((2**place, 1000 / 2 ** (0.8 * place)) for place in range(20))))

    assert found is not None
    assert [each.k for each in found.assignments] == [2, 3, 4, 5, 6]
    assert not all(each.is_stable for each in found.assignments)


def test_the_clusters_of_the_shipped_workloads_are_not_all_stable_and_the_study_says_which() -> None:
    """Nothing here depends on the host: seeds are fixed."""
    found = {each.benchmark: cluster_systems(each.systems) for each in make_study(read_results_csv()).workloads}

    assert {name: each.best_assignment.is_stable for name, each in found.items() if each} == {
        "bert": True, "llama2_70b_lora": False, "ssd": False, "stable_diffusion": True,
    }  # fmt: skip


def test_features_are_standardised_and_one_that_never_varies_is_zero() -> None:
    """Equal weight for counts and for E', however many orders of magnitude they span."""
    points = make_feature_matrix(systems(*THREE))

    assert points.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-12)
    assert points.std(axis=0) == pytest.approx(np.ones(3))
    assert not make_feature_matrix(systems((8, 5.0), (8, 4.0), (8, 3.0)))[:, 0].any()


@pytest.mark.parametrize("sizes", [[(8, 5.0)], [(8, 5.0), (8, 5.0)], [(8, 5.0), (16, 3.0)]])
def test_too_few_different_systems_have_no_clusters(sizes: list[tuple[int, float]]) -> None:
    """Two systems in two clusters have no silhouette; other rounds have workloads with three."""
    assert cluster_systems(systems(*sizes)) is None


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 5), min_size=2, max_size=8))
@settings(max_examples=30)
def test_stability_is_the_mean_index_over_all_pairs(labelings: list[tuple[int, ...]]) -> None:
    """Equal partitions are counted without computing; that must not change the mean."""
    pairs = [adjusted_rand_score(one, other) for place, one in enumerate(labelings) for other in labelings[place + 1 :]]

    assert mean_rand_index(labelings) == pytest.approx(np.mean(pairs))
