"""Tests of every rule of load balancing: shares add up to the batch, and every worker has a sample."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.learning.batch_balance import (
    AnyBatchBalance,
    BatchBalance,
    DynamicBalance,
    ProportionalBalance,
    UniformBalance,
)
from services.learning.data_order import DataOrder

WORKERS = 4
EXAMPLES: list[BatchBalance] = [
    UniformBalance(),
    ProportionalBalance(),
    ProportionalBalance(weights=(1, 2, 3, 4)),
    ProportionalBalance(max_share=20),
    DynamicBalance(),
    DynamicBalance(period=3, smoothing=0, dead_band=0, max_share=20),
]

every_balance = pytest.mark.parametrize("balance", EXAMPLES, ids=repr)
batches = st.integers(WORKERS, 20 * WORKERS)
speeds = st.lists(st.floats(1e-3, 1e6), min_size=WORKERS, max_size=WORKERS).map(tuple)


def test_examples_table_contains_every_rule() -> None:
    """A rule that is not in the table is not tested."""
    union, _ = get_args(AnyBatchBalance)

    assert {type(balance) for balance in EXAMPLES} == set(get_args(union))


@every_balance
def test_rule_survives_a_json_round_trip(balance: BatchBalance) -> None:
    """Every node reads the rule from the plan."""
    assert TypeAdapter(AnyBatchBalance).validate_json(balance.model_dump_json()) == balance


@every_balance
@given(batch=batches, declared=speeds, measured=st.lists(speeds, max_size=3), samples=st.integers(1, 300))
def test_each_epoch_has_each_sample_once(
    balance: BatchBalance,
    batch: int,
    declared: tuple[float, ...],
    measured: list[tuple[float, ...]],
    samples: int,
) -> None:
    """The update must be that of the whole batch, whatever the speeds are, also on the last batch of an epoch."""
    order = DataOrder(samples=samples, batch=batch, seed=1)
    shares = balance.initial_shares(batch, declared)
    seen: list[int] = []

    for step in range(order.steps_per_epoch):
        parts = [order.select_sample_indices(step, rank, shares).tolist() for rank in range(WORKERS)]
        assert tuple(map(len, parts)) == order.share_sizes(step, shares)
        assert sum(map(len, parts)) == order.batch_size(step)
        if order.batch_size(step) == batch:
            assert min(map(len, parts)) >= 1
        if limit := getattr(balance, "max_share", None):
            assert max(map(len, parts)) <= limit
        seen += [sample for part in parts for sample in part]
        shares = balance.resize_shares(shares, measured[step % len(measured)] if measured else declared)

    assert sorted(seen) == list(range(samples))


@every_balance
def test_equal_speeds_keep_equal_shares(balance: BatchBalance) -> None:
    """A worker must not get more samples than another one of the same speed."""
    if getattr(balance, "weights", None):
        pytest.skip("weights replace the speeds")
    shares = balance.initial_shares(40, (5.0,) * WORKERS)

    assert len(set(shares)) == 1
    assert balance.resize_shares(shares, (5.0,) * WORKERS) == shares


@every_balance
def test_rule_that_never_changes_shares_exchanges_no_speeds(balance: BatchBalance) -> None:
    """An exchange without an effect would only cost time."""
    shares = balance.initial_shares(40, (1.0, 2.0, 3.0, 4.0))
    changes = balance.resize_shares(shares, (4.0, 3.0, 2.0, 1.0)) != shares

    assert changes == (balance.resize_period > 0)
