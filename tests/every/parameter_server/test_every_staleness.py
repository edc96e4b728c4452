"""Tests of every staleness weighting: fresh gradients have weight 1, and weights never grow with staleness."""

from math import exp
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.learning.optimisers import Adam, Optimiser, Sgd
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.compensation import NoCompensation
from services.parameter_server.staleness import (
    AnyStalenessWeighting,
    CutOffWeighting,
    DynSgdWeighting,
    ExponentialWeighting,
    InverseWeighting,
    StalenessWeighting,
    UniformWeighting,
)
from services.parameter_server.update_rules import GradientUpdateRule, WorkerContribution

# A weighting, and its weight of a gradient that is four updates old; None: the gradient is dropped.
EXAMPLES: list[tuple[StalenessWeighting, float | None]] = [
    (UniformWeighting(), 1.0),
    (InverseWeighting(), 1 / 4),
    (DynSgdWeighting(), 1 / 5),
    (ExponentialWeighting(decay=0.5), exp(-2)),
    (CutOffWeighting(oldest=4), 1.0),
    (CutOffWeighting(oldest=3), None),
]

every_staleness = pytest.mark.parametrize("staleness", [member for member, _ in EXAMPLES], ids=repr)


def test_examples_table_contains_every_weighting() -> None:
    """A weighting that is not in the table is not tested."""
    union, _ = get_args(AnyStalenessWeighting)

    assert {type(member) for member, _ in EXAMPLES} == set(get_args(union))


@every_staleness
def test_weighting_survives_a_json_round_trip(staleness: StalenessWeighting) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyStalenessWeighting).validate_json(staleness.model_dump_json()) == staleness


@pytest.mark.parametrize(("staleness", "weight"), EXAMPLES, ids=repr)
def test_weight_follows_its_formula(staleness: StalenessWeighting, weight: float | None) -> None:
    """Expected weights are computed by hand, for a staleness of four."""
    assert staleness.accepts_staleness(4) == (weight is not None)
    if weight is not None:
        assert staleness.weight(4) == pytest.approx(weight)


@every_staleness
@given(age=st.integers(0, 100_000))
def test_weights_are_positive_and_never_grow_with_staleness(staleness: StalenessWeighting, age: int) -> None:
    """A weight of zero, or above one, would be a different algorithm."""
    assert staleness.accepts_staleness(0)
    assert staleness.weight(0) == 1
    assert 0 < staleness.weight(age + 1) <= staleness.weight(age) <= 1
    assert staleness.accepts_staleness(age) >= staleness.accepts_staleness(age + 1)


@every_staleness
@pytest.mark.parametrize("optimiser", [Sgd(rate=0.5), Adam(rate=0.5)], ids=lambda optimiser: optimiser.kind)
def test_equally_stale_gradients_use_their_weight_of_the_learning_rate(
    staleness: StalenessWeighting, optimiser: Optimiser
) -> None:
    """For two gradients in one update as for one, and for optimisers that ignore the scale of gradients."""
    params, gradients = np.ones(3), (np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 0.0]))
    updater = ParameterUpdater(optimiser)
    rule = GradientUpdateRule(params, updater, updater.init_state(params), staleness, NoCompensation())
    slower = optimiser.model_copy(update={"rate": optimiser.rate * staleness.weight(2)})

    rule.update_shard_params([WorkerContribution(rank, 4, 2, gradient) for rank, gradient in enumerate(gradients)], 0)

    expected, _ = slower.update_params(params, sum(gradients) / 2, slower.init_state(params))
    np.testing.assert_allclose(rule.params, expected, rtol=1e-12)


@every_staleness
def test_gradients_in_one_update_count_by_samples_and_weight(staleness: StalenessWeighting) -> None:
    """The update is the sum of samples times weight times gradient, divided by the number of all samples."""
    params, fresh, old = np.zeros(2), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    optimiser = Sgd(rate=1.0)
    updater = ParameterUpdater(optimiser)
    rule = GradientUpdateRule(params, updater, updater.init_state(params), staleness, NoCompensation())

    rule.update_shard_params([WorkerContribution(0, 1, 0, fresh), WorkerContribution(1, 3, 2, old)], 0)

    np.testing.assert_allclose(rule.params, [-1 / 4, -3 / 4 * staleness.weight(2)], rtol=1e-12)
