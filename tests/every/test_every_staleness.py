"""Every weighting of stale gradients through one battery: fresh ones count fully, older ones never more."""

from math import exp
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.learning.optimisers import Adam, Optimiser, Sgd
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

# A member, and what it makes of a gradient that is four updates old; None: drops it.
EXAMPLES: list[tuple[StalenessWeighting, float | None]] = [
    (UniformWeighting(), 1.0),
    (InverseWeighting(), 1 / 4),
    (DynSgdWeighting(), 1 / 5),
    (ExponentialWeighting(decay=0.5), exp(-2)),
    (CutOffWeighting(oldest=4), 1.0),
    (CutOffWeighting(oldest=3), None),
]

every_staleness = pytest.mark.parametrize("staleness", [member for member, _ in EXAMPLES], ids=repr)


def test_every_member_of_the_family_stands_in_the_table() -> None:
    """One that is not in the table is not tested."""
    union, _ = get_args(AnyStalenessWeighting)

    assert {type(member) for member, _ in EXAMPLES} == set(get_args(union))


@every_staleness
def test_it_is_read_from_what_it_writes(staleness: StalenessWeighting) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyStalenessWeighting).validate_json(staleness.model_dump_json()) == staleness


@pytest.mark.parametrize(("staleness", "weight"), EXAMPLES, ids=repr)
def test_a_weight_follows_its_formula(staleness: StalenessWeighting, weight: float | None) -> None:
    """By hand, for an age of four."""
    assert staleness.accepts_staleness(4) == (weight is not None)
    if weight is not None:
        assert staleness.weight(4) == pytest.approx(weight)


@every_staleness
@given(age=st.integers(0, 100_000))
def test_weights_are_shares_that_never_grow_with_age(staleness: StalenessWeighting, age: int) -> None:
    """A gradient that counted for nothing, or more than fully, would be another algorithm."""
    assert staleness.accepts_staleness(0)
    assert staleness.weight(0) == 1
    assert 0 < staleness.weight(age + 1) <= staleness.weight(age) <= 1
    assert staleness.accepts_staleness(age) >= staleness.accepts_staleness(age + 1)


@every_staleness
@pytest.mark.parametrize("optimiser", [Sgd(rate=0.5), Adam(rate=0.5)], ids=lambda optimiser: optimiser.kind)
def test_gradients_of_one_age_are_used_with_that_part_of_the_rate(
    staleness: StalenessWeighting, optimiser: Optimiser
) -> None:
    """Of two gradients in one update as of one alone, and under optimisers that forget how large gradients are."""
    first, gradients = np.ones(3), (np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 0.0]))
    rule = GradientUpdateRule(first, optimiser, optimiser.init_state(first), staleness, NoCompensation())
    slower = optimiser.model_copy(update={"rate": optimiser.rate * staleness.weight(2)})

    rule.update([WorkerContribution(rank, 4, 2, gradient) for rank, gradient in enumerate(gradients)])

    expected, _ = slower.update_params(first, sum(gradients) / 2, slower.init_state(first))
    np.testing.assert_allclose(rule.params, expected, rtol=1e-12)


@every_staleness
def test_of_several_gradients_each_counts_by_samples_and_weight(staleness: StalenessWeighting) -> None:
    """The sum of samples times weight times gradient, over all samples."""
    first, fresh, old = np.zeros(2), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    optimiser = Sgd(rate=1.0)
    rule = GradientUpdateRule(first, optimiser, optimiser.init_state(first), staleness, NoCompensation())

    rule.update([WorkerContribution(0, 1, 0, fresh), WorkerContribution(1, 3, 2, old)])

    np.testing.assert_allclose(rule.params, [-1 / 4, -3 / 4 * staleness.weight(2)], rtol=1e-12)
