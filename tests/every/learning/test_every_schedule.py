"""Tests of every learning-rate schedule: factors by hand, warm-up, and conversion of steps to shares of the budget."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.learning.data_order import DataOrder
from services.learning.schedules import (
    AnySchedule,
    ConstantSchedule,
    CosineSchedule,
    LearningRateSchedule,
    LinearWarmup,
    PolynomialSchedule,
    StepSchedule,
    TrainingBudget,
)
from services.learning.schedules.base import WarmupSchedule

# A schedule, and its factors by share of the budget, computed by hand.
EXAMPLES: list[tuple[LearningRateSchedule, dict[float, float]]] = [
    (ConstantSchedule(), {0: 1, 0.5: 1, 1: 1}),
    (LinearWarmup(warmup=0.2), {0: 0, 0.05: 0.25, 0.1: 0.5, 0.2: 1, 0.7: 1, 1: 1}),
    (LinearWarmup(warmup=0.5, warmup_start=0.2), {0: 0.2, 0.25: 0.6, 0.5: 1, 1: 1}),
    (CosineSchedule(), {0: 1, 1 / 3: 0.75, 0.5: 0.5, 2 / 3: 0.25, 1: 0}),
    (CosineSchedule(warmup=0.1, final=0.2), {0: 0, 0.05: 0.5, 0.1: 1, 0.55: 0.6, 1: 0.2}),
    (PolynomialSchedule(), {0: 1, 0.25: 0.75, 1: 0}),
    (PolynomialSchedule(power=2, warmup=0.5, final=0.1), {0: 0, 0.5: 1, 0.75: 0.1 + 0.9 / 4, 1: 0.1}),
    (StepSchedule(milestones=(0.5, 0.75), factor=0.1), {0: 1, 0.4999: 1, 0.5: 0.1, 0.7499: 0.1, 0.75: 0.01, 1: 0.01}),
    (StepSchedule(milestones=(0.5,), factor=0.5, warmup=0.25), {0: 0, 0.125: 0.5, 0.25: 1, 0.5: 0.5, 1: 0.5}),
]
WITH_WARMUP = [schedule for schedule, _ in EXAMPLES if isinstance(schedule, WarmupSchedule)]

# 80 samples are six batches of 12 and one of 8: seven steps in each of three epochs.
BUDGET = TrainingBudget(DataOrder(samples=80, batch=12, seed=1), epochs=3)

every_schedule = pytest.mark.parametrize("schedule", [schedule for schedule, _ in EXAMPLES], ids=repr)


def test_examples_table_contains_every_schedule() -> None:
    """A schedule that is not in the table is not tested."""
    union, _ = get_args(AnySchedule)

    assert {type(schedule) for schedule, _ in EXAMPLES} == set(get_args(union))


@every_schedule
def test_schedule_survives_a_json_round_trip(schedule: LearningRateSchedule) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnySchedule).validate_json(schedule.model_dump_json()) == schedule


@pytest.mark.parametrize(("schedule", "factors"), EXAMPLES, ids=repr)
def test_factors_equal_those_computed_by_hand(schedule: LearningRateSchedule, factors: dict[float, float]) -> None:
    """Includes the start, the end, and both sides of every milestone."""
    assert {share: schedule.rate_factor(share) for share in factors} == pytest.approx(factors)


@every_schedule
@given(share=st.floats(0, 1.5))
def test_factors_are_between_zero_and_one(schedule: LearningRateSchedule, share: float) -> None:
    """The declared rate is the largest rate of the run."""
    assert 0 <= schedule.rate_factor(share) <= 1


@every_schedule
def test_factor_stays_the_same_after_the_budget(schedule: LearningRateSchedule) -> None:
    """Asynchronous workers finish their step when the budget is used: the rate must not rise or become negative."""
    assert schedule.rate_factor(1.3) == schedule.rate_factor(1.0)


@pytest.mark.parametrize("schedule", WITH_WARMUP, ids=repr)
@given(shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_factor_grows_in_the_warm_up_and_never_grows_later(
    schedule: WarmupSchedule, shares: tuple[float, float]
) -> None:
    """A warm-up ends at the declared rate; after it, every schedule only falls."""
    earlier, later = sorted(shares)

    if later < schedule.warmup_share:
        assert schedule.rate_factor(earlier) <= schedule.rate_factor(later)
    elif earlier >= schedule.warmup_share:
        assert schedule.rate_factor(earlier) >= schedule.rate_factor(later)
    assert schedule.rate_factor(schedule.warmup_share) == pytest.approx(1)


@every_schedule
def test_schedule_in_shares_is_not_changed_by_the_conversion(schedule: LearningRateSchedule) -> None:
    """The plan converts every schedule."""
    assert schedule.convert_steps(BUDGET) == schedule
    assert not list(schedule.find_budget_conflicts(BUDGET))


@pytest.mark.parametrize(
    "schedule",
    [
        LinearWarmup(warmup_steps=4),
        CosineSchedule(warmup_steps=10, final=0.1),
        PolynomialSchedule(warmup_steps=7),
        StepSchedule(milestone_steps=(9, 14), warmup_steps=8),
    ],
    ids=lambda schedule: schedule.kind,
)
def test_warm_up_in_steps_grows_by_equal_parts_and_ends_at_its_step(schedule: WarmupSchedule) -> None:
    """By the samples before each step: the last batch of an epoch is smaller, so its part is smaller."""
    converted = schedule.convert_steps(BUDGET)
    samples = [BUDGET.data_order.count_samples_before(step) for step in range(schedule.warmup_steps + 1)]

    factors = [converted.rate_factor(BUDGET.share_before(step)) for step in range(schedule.warmup_steps + 1)]

    assert factors == pytest.approx([count / samples[-1] for count in samples])
    assert factors[-1] == 1
    assert converted.warmup_steps is None


def test_milestones_in_steps_take_effect_exactly_at_their_steps() -> None:
    """Step 9 is the first one with the smaller rate; its share of the budget has no exact binary form."""
    schedule = StepSchedule(milestone_steps=(9, 14), factor=0.5).convert_steps(BUDGET)

    factors = [schedule.rate_factor(BUDGET.share_before(step)) for step in range(BUDGET.steps)]

    assert factors == [1.0] * 9 + [0.5] * 5 + [0.25] * 7
