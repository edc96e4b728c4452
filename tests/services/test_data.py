"""The order of samples, the shares of the ranks, and the quality metrics."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, mean_absolute_error, mean_squared_error, r2_score

from services.learning.data_order import DataOrder, RankWeights, split_proportionally
from services.learning.objectives import OBJECTIVES
from services.runtime.device import ComputeDevice

orders = st.builds(DataOrder, samples=st.integers(1, 200), batch=st.integers(1, 250), seed=st.integers(0, 9))
weights = st.lists(st.floats(0.01, 100), min_size=1, max_size=9).map(tuple)


@given(order=orders, epoch=st.integers(0, 3))
def test_an_epoch_has_every_sample_exactly_once(order: DataOrder, epoch: int) -> None:
    """Convergence is measured in epochs."""
    first = epoch * order.steps_per_epoch

    seen = np.concatenate([order.batch_sample_indices(first + step) for step in range(order.steps_per_epoch)])

    assert sorted(seen) == list(range(order.samples))


@given(order=orders, shares=weights, step=st.integers(0, 500))
def test_the_shares_of_the_ranks_add_up_to_the_global_batch_in_order(
    order: DataOrder, shares: RankWeights, step: int
) -> None:
    """No sample is lost and none is counted twice, whatever the balance and however small the last batch."""
    parts = [order.select_sample_indices(step, rank, shares) for rank in range(len(shares))]

    np.testing.assert_array_equal(np.concatenate(parts), order.batch_sample_indices(step))


def test_the_last_batch_of_an_epoch_may_be_smaller() -> None:
    """Dropping it would drop samples; filling it up would count some twice."""
    order = DataOrder(samples=10, batch=4, seed=0)

    assert order.steps_per_epoch == 3
    assert [len(order.batch_sample_indices(step)) for step in range(6)] == [4, 4, 2, 4, 4, 2]


def test_ranks_beyond_the_last_samples_get_no_samples() -> None:
    """Such ranks still take part in the sum, with weight zero."""
    order = DataOrder(samples=10, batch=4, seed=0)

    assert [len(order.select_sample_indices(2, rank, (1,) * 4)) for rank in range(4)] == [1, 1, 0, 0]


def test_every_epoch_and_every_seed_has_its_own_order() -> None:
    """The same order in every epoch biases the gradient; the same seed must repeat the run."""
    first, same_seed, other_seed = (DataOrder(samples=100, batch=100, seed=seed) for seed in (1, 1, 2))

    assert first.batch_sample_indices(0).tolist() == same_seed.batch_sample_indices(0).tolist()
    assert first.batch_sample_indices(0).tolist() != first.batch_sample_indices(1).tolist()
    assert first.batch_sample_indices(0).tolist() != other_seed.batch_sample_indices(0).tolist()


def test_the_global_batch_does_not_depend_on_the_number_of_workers() -> None:
    """Runs with different numbers of workers must be the same training."""
    order = DataOrder(samples=50, batch=16, seed=3)

    alone = order.select_sample_indices(1, 0, (1,))
    together = np.concatenate([order.select_sample_indices(1, rank, (1,) * 5) for rank in range(5)])

    np.testing.assert_array_equal(alone, together)


def test_the_sample_indices_of_a_batch_are_read_only() -> None:
    """Workers in one process share the permutation in memory, and none may change it for the others."""
    indices = DataOrder(samples=10, batch=4, seed=0).batch_sample_indices(0)

    with pytest.raises(ValueError, match="read-only"):
        indices[0] = 0


@given(total=st.integers(0, 5000), shares=weights)
def test_parts_add_up_and_differ_from_their_quota_by_less_than_one(total: int, shares: RankWeights) -> None:
    """Largest remainder: every part is its exact quota rounded down or up."""
    parts = split_proportionally(total, shares)
    total_weight = sum(map(Fraction, shares))

    assert sum(parts) == total
    assert all(
        abs(part - total * Fraction(share) / total_weight) < 1 for part, share in zip(parts, shares, strict=True)
    )


def test_faster_ranks_get_more_samples() -> None:
    """Weights are speeds in any unit; a rank without weight gets nothing."""
    assert split_proportionally(128, (1, 1, 2)) == (32, 32, 64)
    assert split_proportionally(128, (100.0, 100.0, 200.0)) == (32, 32, 64)
    assert split_proportionally(10, (1, 0, 3)) == (3, 0, 7)


def test_accuracy_equals_that_of_scikit_learn(device: ComputeDevice) -> None:
    """A well-known metric must have its usual definition."""
    rng = np.random.default_rng(0)
    scores, labels = rng.standard_normal((50, 10)), rng.integers(10, size=50)

    metrics = OBJECTIVES["cross_entropy"].measure_quality(device.to_device(scores), device.to_device(labels))

    assert metrics == {"accuracy": pytest.approx(accuracy_score(labels, scores.argmax(axis=1)))}


def test_errors_and_r2_equal_those_of_scikit_learn(device: ComputeDevice) -> None:
    """The second target is constant and predicted exactly; the third is constant and predicted wrongly."""
    rng = np.random.default_rng(0)
    targets = rng.standard_normal((50, 3)) * [1, 0, 0] + [0, 2, 3]
    outputs = targets + 0.3 * rng.standard_normal((50, 3)) * [1, 0, 1]

    metrics = OBJECTIVES["mse"].measure_quality(device.to_device(outputs), device.to_device(targets))

    assert metrics == {
        "mae": pytest.approx(mean_absolute_error(targets, outputs)),
        "mse": pytest.approx(mean_squared_error(targets, outputs)),
        "r2": pytest.approx(r2_score(targets, outputs)),
    }
