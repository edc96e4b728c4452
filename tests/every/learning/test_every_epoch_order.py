"""Tests of every order of samples within an epoch: each epoch is a permutation, and parts of it are consistent."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.learning.epoch_orders import AnyEpochOrder, EpochOrder, ShuffledBlocksOrder, ShuffledOrder

EXAMPLES: list[EpochOrder] = [ShuffledOrder(), ShuffledBlocksOrder(block=7)]

every_epoch_order = pytest.mark.parametrize("order", EXAMPLES, ids=lambda order: order.kind)


def test_examples_table_contains_every_epoch_order() -> None:
    """An order that is not in the table is not tested."""
    union, _ = get_args(AnyEpochOrder)

    assert {type(order) for order in EXAMPLES} == set(get_args(union))


@every_epoch_order
def test_epoch_order_survives_a_json_round_trip(order: EpochOrder) -> None:
    """Every node reads the order from the plan."""
    assert TypeAdapter(AnyEpochOrder).validate_json(order.model_dump_json()) == order


@every_epoch_order
@given(sample_count=st.integers(1, 200), epoch=st.integers(0, 3))
def test_an_epoch_is_a_permutation_of_all_samples(order: EpochOrder, sample_count: int, epoch: int) -> None:
    """A sample that an epoch lacks would never be learned; one that it has twice would count twice."""
    samples = order.select_samples(sample_count, (1, epoch), 0, sample_count)

    assert sorted(samples.tolist()) == list(range(sample_count))


@every_epoch_order
@given(sample_count=st.integers(1, 100), cuts=st.lists(st.integers(0, 100), max_size=6))
def test_parts_of_an_epoch_are_those_of_the_whole_epoch(order: EpochOrder, sample_count: int, cuts: list[int]) -> None:
    """Workers select their shares separately, without the rest of the epoch."""
    ends = [0, *sorted(min(cut, sample_count) for cut in cuts), sample_count]

    parts = [order.select_samples(sample_count, (1, 2), *ends[number : number + 2]) for number in range(len(ends) - 1)]

    np.testing.assert_array_equal(np.concatenate(parts), order.select_samples(sample_count, (1, 2), 0, sample_count))


@every_epoch_order
def test_every_epoch_has_its_own_order_which_is_repeatable(order: EpochOrder) -> None:
    """The same order in every epoch biases the gradient; a repeated run must read the same samples."""
    first, repeated, second = (order.select_samples(100, (1, epoch), 0, 100).tolist() for epoch in (0, 0, 1))

    assert first == repeated
    assert first != second
    assert first != list(range(100))


@every_epoch_order
def test_long_orders_are_permutations_too(order: EpochOrder) -> None:
    """Long permutations are cached separately from short ones."""
    samples = order.select_samples(70_000, (3, 0), 0, 70_000)

    assert np.array_equal(np.sort(samples), np.arange(70_000))


def test_the_shuffled_order_is_the_permutation_that_earlier_versions_drew() -> None:
    """The default order must keep the bits of all published results."""
    expected = np.random.Generator(np.random.PCG64([5, 2])).permutation(50)

    np.testing.assert_array_equal(ShuffledOrder().select_samples(50, (5, 2), 0, 50), expected)


@given(sample_count=st.integers(1, 300), block=st.integers(1, 40), start=st.integers(0, 299), length=st.integers(1, 60))
def test_consecutive_samples_of_shuffled_blocks_come_from_few_blocks(
    sample_count: int, block: int, start: int, length: int
) -> None:
    """Few blocks are few places of the disk; each block is read from its start to its end before the next one."""
    order, start = ShuffledBlocksOrder(block=block), min(start, sample_count - 1)
    end = min(start + length, sample_count)

    blocks = (order.select_samples(sample_count, (1, 0), start, end) // block).tolist()

    runs = [number for k, number in enumerate(blocks) if k == 0 or number != blocks[k - 1]]
    assert len(runs) == len(set(runs))
    assert len(runs) <= (end - start) // block + 3  # one block of the order may be smaller
