"""Tests of every switch rule, and of the plateau rule on curves whose switch can be calculated."""

from collections.abc import Callable, Iterable
from itertools import count, islice
from math import exp, inf, isnan, nan, pi, sqrt
from typing import Literal, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from services.strategies.switching.rules import (
    AnySwitchRule,
    AtStepRule,
    LossEvaluation,
    NeverRule,
    PlateauRule,
    SwitchRule,
    SwitchRuleState,
)

EXAMPLES: list[SwitchRule] = [
    PlateauRule(),
    PlateauRule(window=3, threshold=0.2, loss="train", aggregate="max", min_points=2, force_at=9, abort_after=2),
    AtStepRule(step=0),
    AtStepRule(fraction=0.25),
    AtStepRule(epoch=3),
    NeverRule(),
]

every_rule = pytest.mark.parametrize("rule", EXAMPLES, ids=repr)
losses = st.lists(st.floats(0, 1e6) | st.just(nan) | st.just(inf), max_size=40)


def fires_at(rule: SwitchRule, curve: Iterable[float]) -> int | None:
    """Return the first evaluation point at which a rule fires."""
    past = SwitchRuleState()
    for number, loss in enumerate(curve, 1):
        decision, past = rule.decide_strategy_switch(LossEvaluation(number, number, loss, [(loss * 10, 10)]), past)
        if decision.fires:
            return number
    return None


def curve(loss: Callable[[int], float], points: int = 600) -> Iterable[float]:
    """Return the losses of epochs 1, 2, …"""
    return islice(map(loss, count(1)), points)


def test_examples_table_contains_every_rule() -> None:
    """A rule that is not in the table is not tested."""
    union, _ = get_args(AnySwitchRule)

    assert {type(rule) for rule in EXAMPLES} == set(get_args(union))


@every_rule
def test_rule_survives_a_json_round_trip(rule: SwitchRule) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnySwitchRule).validate_json(rule.model_dump_json()) == rule


@every_rule
@given(curve=losses)
def test_rule_accepts_any_loss_and_planned_rules_ignore_it(rule: SwitchRule, curve: list[float]) -> None:
    """Training diverges now and then; a rule that raises would end the run, one that guesses would switch."""
    if rule.planned_switch_step(1000, 10) is not None or isinstance(rule, NeverRule):
        assert fires_at(rule, curve) is None
    fires_at(rule, curve)


@every_rule
@given(steps=st.integers(1, 10_000), spe=st.integers(1, 100))
def test_planned_step_is_within_the_budget(rule: SwitchRule, steps: int, spe: int) -> None:
    """Workers start a strategy switch before a step that they do, or not at all."""
    planned = rule.planned_switch_step(steps, spe)

    assert planned is None or 0 <= planned < steps


@pytest.mark.parametrize(("floor", "epoch"), [(0.1, 48), (0.3, 37), (1.0, 25)])
def test_plateau_rule_fires_when_the_change_is_small_relative_to_the_floor(floor: float, epoch: int) -> None:
    """L = L∞ + exp(-e/10) fires when the mean over five changes is 0.01: at epochs 48, 37 and 25 by calculation."""
    assert fires_at(PlateauRule(), curve(lambda e: floor + exp(-e / 10))) == pytest.approx(epoch, abs=1)


@pytest.mark.parametrize("tau", [1, 10, 50, 99])
def test_plateau_rule_never_fires_for_a_loss_that_decays_to_zero(tau: float) -> None:
    """The relative change is always 1 - exp(-1/τ): above 0.01 up to τ of about 100 epochs."""
    assert fires_at(PlateauRule(), curve(lambda e: exp(-e / tau))) is None


def test_plateau_rule_fires_at_once_for_a_slow_decay() -> None:
    """Beyond τ = 100 the change is below 0.01 from the start; the rule fires when its window is full."""
    assert fires_at(PlateauRule(), curve(lambda e: exp(-e / 110))) == 6


@pytest.mark.parametrize("power", [0.2, 0.5, 1.0])
def test_plateau_rule_fires_for_a_power_law_near_100_times_its_exponent(power: float) -> None:
    """L ∝ e^-a changes by a/e per epoch; the window reaches back, so about three epochs after 100 a."""
    assert fires_at(PlateauRule(), curve(lambda e: e**-power)) == pytest.approx(100 * power + 3, abs=1.5)


@pytest.mark.parametrize("sigma", [0.001, 0.01, 0.03])
def test_noise_is_added_to_the_value_of_the_plateau_rule(sigma: float) -> None:
    """Independent relative noise σ gives the value 2σ/√π, so losses of few samples never reach a plateau."""
    noisy = 1 + sigma * np.random.default_rng(1).normal(size=4000)
    rule, past, values = PlateauRule(), SwitchRuleState(), []
    for number, loss in enumerate(noisy, 1):
        decision, past = rule.decide_strategy_switch(LossEvaluation(number, number, float(loss)), past)
        values.append(decision.value)

    assert np.mean(values[5:]) == pytest.approx(2 * sigma / sqrt(pi), rel=0.05)


def test_losses_that_are_not_finite_are_skipped_until_the_rule_gives_up() -> None:
    """A NaN must neither fire nor block the rule; several mean that training has diverged."""
    rule, past = PlateauRule(window=2, min_points=1, abort_after=2), SwitchRuleState()

    decisions = []
    for number, loss in enumerate([1.0, nan, 1.0, inf], 1):
        decision, past = rule.decide_strategy_switch(LossEvaluation(number, number, loss), past)
        decisions.append((decision.fires, decision.skipped, decision.gives_up))

    assert decisions == [(False, 0, False), (False, 1, False), (True, 1, False), (False, 2, True)]


def test_min_points_delays_a_switch_and_force_at_forces_it() -> None:
    """A flat start is no plateau, and a curve without a plateau can be switched nevertheless."""
    assert fires_at(PlateauRule(window=2, min_points=5), curve(lambda e: 1.0)) == 5
    assert fires_at(PlateauRule(force_at=7), curve(lambda e: exp(-e))) == 7


@given(losses_of_workers=st.lists(st.tuples(st.floats(0.1, 10), st.integers(1, 100)), min_size=1, max_size=8))
def test_maximum_worker_loss_is_at_least_the_mean_over_all_samples(losses_of_workers: list[tuple[float, int]]) -> None:
    """Workers with more samples have more weight in the mean; `max` is the loss of the worst worker."""
    point = LossEvaluation(1, 1, train_loss_sums=[(mean * samples, samples) for mean, samples in losses_of_workers])

    mean, worst = point.select_loss("train", "mean"), point.select_loss("train", "max")

    assert worst == pytest.approx(max(mean for mean, _ in losses_of_workers))
    assert mean <= worst * (1 + 1e-12)


@given(means=st.permutations([1.0, 2.0, nan]), aggregate=st.sampled_from(["mean", "max"]))
def test_diverged_worker_is_detected_at_any_rank(means: list[float], aggregate: Literal["mean", "max"]) -> None:
    """Otherwise the rule would continue, and might fire, on a loss that no worker has."""
    assert isnan(
        LossEvaluation(1, 1, train_loss_sums=[(10 * mean, 10) for mean in means]).select_loss("train", aggregate)
    )


@pytest.mark.parametrize("fields", [{}, {"step": 1, "epoch": 1}, {"fraction": 1.5}, {"step": -1}])
def test_at_rule_needs_exactly_one_moment_within_the_budget(fields: dict[str, float]) -> None:
    """Two moments contradict each other; without any, the rule has no meaning."""
    with pytest.raises(ValidationError):
        AtStepRule.model_validate(fields)


def test_fraction_zero_switches_at_once_and_fraction_one_never() -> None:
    """0 uses the second strategy from the first step on; 1 uses the first strategy to the last step."""
    assert AtStepRule(fraction=0).planned_switch_step(40, 4) == 0
    assert AtStepRule(fraction=1).planned_switch_step(40, 4) is None
    assert AtStepRule(epoch=3).planned_switch_step(40, 4) == 12
