"""The order of samples, the shares of the ranks, and the quality metrics."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, mean_absolute_error, mean_squared_error, r2_score

from services.learning.data_order import DataOrder, RankWeights, count_drawn_samples, split_proportionally
from services.learning.epoch_orders import ShuffledBlocksOrder, ShuffledOrder
from services.learning.objectives import OBJECTIVES
from services.runtime.device import ComputeDevice

epoch_orders = st.just(ShuffledOrder()) | st.builds(ShuffledBlocksOrder, block=st.integers(1, 60))
orders = st.builds(
    DataOrder,
    samples=st.integers(1, 200),
    batch=st.integers(1, 250),
    seed=st.integers(0, 9),
    epoch_order=epoch_orders,
)
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


@st.composite
def partitioned_orders(draw: st.DrawFn) -> tuple[DataOrder, list[np.ndarray]]:
    """Return an order in which each rank owns samples, and the samples of each rank."""
    sizes = tuple(draw(st.lists(st.integers(1, 60), min_size=1, max_size=6)))
    order = DataOrder(
        samples=sum(sizes),
        batch=draw(st.integers(1, 80)),
        seed=draw(st.integers(0, 9)),
        epoch_order=draw(epoch_orders),
        part_sizes=sizes,
    )
    shuffled = np.random.default_rng(0).permutation(order.samples)
    return order, [np.sort(part) for part in np.split(shuffled, np.cumsum(sizes)[:-1])]


def shares_of_step(order: DataOrder, parts: list[np.ndarray], step: int) -> list[np.ndarray]:
    """Return the samples of each rank at a step."""
    weights = (1,) * len(parts)
    return [order.select_sample_indices(step, rank, weights, part) for rank, part in enumerate(parts)]


@given(drawn=partitioned_orders(), epoch=st.integers(0, 2))
def test_an_epoch_has_every_sample_once_if_ranks_own_their_samples(
    drawn: tuple[DataOrder, list[np.ndarray]], epoch: int
) -> None:
    """No sample is lost or counted twice, however uneven the parts are."""
    order, parts = drawn
    steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)

    seen = np.concatenate([share for step in steps for share in shares_of_step(order, parts, step)])

    assert sorted(seen.tolist()) == list(range(order.samples))


@given(drawn=partitioned_orders(), step=st.integers(0, 200))
def test_ranks_draw_only_samples_that_they_own(drawn: tuple[DataOrder, list[np.ndarray]], step: int) -> None:
    """Uneven data are data that other workers never see."""
    order, parts = drawn

    for share, part in zip(shares_of_step(order, parts, step), parts, strict=True):
        assert set(share.tolist()) <= set(part.tolist())


@given(drawn=partitioned_orders(), step=st.integers(0, 200))
def test_share_sizes_are_those_of_the_selected_samples(drawn: tuple[DataOrder, list[np.ndarray]], step: int) -> None:
    """Plans and servers know the sizes without the samples; the divisor of a sum is the size of the batch."""
    order, parts = drawn

    sizes = order.share_sizes(step, (1,) * len(parts))

    assert sizes == tuple(len(share) for share in shares_of_step(order, parts, step))
    assert sum(sizes) == order.batch_size(step)


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=8).map(tuple), batch=st.integers(1, 100))
def test_ranks_use_their_parts_evenly_over_an_epoch(sizes: tuple[int, ...], batch: int) -> None:
    """After each step, every rank has used the same fraction of its part, up to less than a sample more or two less."""
    drawn = count_drawn_samples(sizes, batch)
    total_drawn = drawn.sum(axis=1, keepdims=True)
    above_quota = drawn - total_drawn * np.array(sizes) / sum(sizes)

    assert total_drawn.ravel().tolist() == [*range(0, sum(sizes), batch), sum(sizes)]
    assert (np.diff(drawn, axis=0) >= 0).all()
    assert drawn[-1].tolist() == list(sizes)
    assert above_quota.min() > -2
    assert above_quota.max() < 1


def test_the_first_batch_is_split_by_largest_remainder() -> None:
    """As for shares without parts; later batches make up for rounding."""
    order = DataOrder(samples=100, batch=10, seed=0, part_sizes=(55, 33, 12))

    assert order.share_sizes(0, ()) == split_proportionally(10, (55, 33, 12)) == (6, 3, 1)
    assert [order.share_sizes(step, ()) for step in (1, 2)] == [(5, 4, 1), (5, 3, 2)]


def test_a_small_part_is_spread_over_the_epoch() -> None:
    """Ten samples in steps of one sample come one in ten steps, not all at the end."""
    order = DataOrder(samples=100, batch=1, seed=0, part_sizes=(90, 10))

    steps = [step for step in range(100) if order.share_sizes(step, ())[1]]

    assert steps == list(range(5, 100, 10))


def test_equal_parts_get_equal_shares() -> None:
    """Even parts are no reason for uneven steps."""
    order = DataOrder(samples=40, batch=8, seed=0, part_sizes=(10, 10, 10, 10))

    assert [order.share_sizes(step, ()) for step in range(5)] == [(2, 2, 2, 2)] * 5


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
