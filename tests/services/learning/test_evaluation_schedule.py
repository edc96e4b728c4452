"""The steps after which a model is evaluated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learning.data_order import DataOrder
from services.learning.evaluation_schedule import EvaluationSchedule


@st.composite
def schedules(draw: st.DrawFn) -> EvaluationSchedule:
    """Schedules whose interval has at least one batch, as scenarios require."""
    samples, epochs = draw(st.integers(1, 120)), draw(st.integers(1, 6))
    batch = draw(st.integers(1, samples))
    every = draw(st.integers(batch, epochs * samples))
    return EvaluationSchedule(
        order=DataOrder(samples=samples, batch=batch, seed=0), epochs=epochs, samples_between=every
    )


def all_steps(schedule: EvaluationSchedule) -> range:
    return range(1, schedule.epochs * schedule.order.steps_per_epoch + 1)


def evaluated_steps(schedule: EvaluationSchedule) -> list[int]:
    """Steps after which a trial that uses up its budget is evaluated."""
    steps = all_steps(schedule)
    return [step for step in steps if schedule.is_due_after(step) or step == steps[-1]]


@given(schedule=schedules())
def test_an_evaluation_follows_its_multiple_of_samples_by_less_than_a_batch(schedule: EvaluationSchedule) -> None:
    """Rounding to whole steps must not add up: a late evaluation would move all later ones."""
    due = [step for step in all_steps(schedule) if schedule.is_due_after(step)]

    for number, step in enumerate(due, start=1):
        samples, multiple = schedule.order.count_samples_before(step), number * schedule.samples_between
        assert multiple <= samples < multiple + schedule.order.batch


@given(schedule=schedules())
def test_evaluations_of_a_trial_are_numbered_from_one_without_gaps(schedule: EvaluationSchedule) -> None:
    """The coordinator answers each number once; the last number ends the budget."""
    numbers = [schedule.evaluation_number(step) for step in evaluated_steps(schedule)]

    assert numbers == list(range(1, schedule.evaluation_count + 1))


@given(schedule=schedules())
def test_the_epoch_of_an_evaluation_is_the_epoch_of_its_last_sample(schedule: EvaluationSchedule) -> None:
    """Logs and reports name the epoch of an evaluation."""
    for step in evaluated_steps(schedule):
        epoch = -(-step // schedule.order.steps_per_epoch)
        assert schedule.epoch_of_evaluation(schedule.evaluation_number(step)) == epoch


@pytest.mark.parametrize(("samples", "batch"), [(80, 12), (80, 80), (1437, 64)])
def test_one_epoch_between_evaluations_evaluates_after_every_epoch(samples: int, batch: int) -> None:
    """This is the default."""
    order = DataOrder(samples=samples, batch=batch, seed=0)
    schedule = EvaluationSchedule(order=order, epochs=3, samples_between=samples)

    assert schedule.is_once_per_epoch
    assert evaluated_steps(schedule) == [order.steps_per_epoch * epoch for epoch in (1, 2, 3)]


@pytest.mark.parametrize("batch", [16, 32, 64])
def test_evaluations_follow_the_same_samples_for_any_batch_that_divides_the_interval(batch: int) -> None:
    """With weak scaling, more workers have a larger batch; times to target then have the same resolution."""
    order = DataOrder(samples=256, batch=batch, seed=0)
    schedule = EvaluationSchedule(order=order, epochs=2, samples_between=64)

    counts = [order.count_samples_before(step) for step in evaluated_steps(schedule)]
    assert counts == [64 * number for number in range(1, 9)]
