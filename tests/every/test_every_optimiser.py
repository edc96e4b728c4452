"""Every optimiser through one battery: pure, element-wise, still when nothing pushes."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.learning.layout import equal_vector_ranges
from services.learning.optimisers import Adam, AnyOptimiser, Momentum, Optimiser, OptimiserState, Sgd
from services.runtime.device import Device
from services.schema.arrays import Vector

EXAMPLES: list[Optimiser] = [
    Sgd(rate=0.1),
    Sgd(rate=0.1, weight_decay=0.01),
    Momentum(rate=0.1),
    Momentum(rate=0.1, nesterov=True, weight_decay=0.01),
    Adam(rate=0.01),
    Adam(rate=0.01, weight_decay=0.01),
]

every_optimiser = pytest.mark.parametrize("optimiser", EXAMPLES, ids=repr)


def trained(optimiser: Optimiser, params: Vector, grads: Vector) -> tuple[Vector, OptimiserState]:
    """The parameters and the state after one update by each row of `grads`."""
    state = optimiser.init_state(params)
    for grad in grads:
        params, state = optimiser.update_params(params, grad, state)
    return params, state


def test_every_member_of_the_family_of_optimisers_stands_in_the_table() -> None:
    """An optimiser that is not in the table is not tested."""
    union, _ = get_args(AnyOptimiser)

    assert {type(optimiser) for optimiser in EXAMPLES} == set(get_args(union))


@every_optimiser
def test_an_optimiser_is_read_from_what_it_writes(optimiser: Optimiser) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyOptimiser).validate_json(optimiser.model_dump_json()) == optimiser


@every_optimiser
@given(size=st.integers(1, 300), parts=st.integers(1, 9), seed=st.integers(0, 99))
def test_ranges_updated_alone_are_bitwise_the_whole_updated(
    optimiser: Optimiser, size: int, parts: int, seed: int
) -> None:
    """Parameter servers hold ranges: with any number of them the model must be the same, to the last bit."""
    rng = np.random.default_rng(seed)
    params = rng.standard_normal(size).astype("float32")
    grads = rng.standard_normal((4, size)).astype("float32")

    whole, state = trained(optimiser, params, grads)
    shards = [trained(optimiser, r.view(params), grads[:, r.start : r.stop]) for r in equal_vector_ranges(size, parts)]

    assert whole.tobytes() == b"".join(shard.tobytes() for shard, _ in shards)
    for slot, pieces in zip(state.slots, zip(*(s.slots for _, s in shards), strict=True), strict=True):
        assert slot.tobytes() == b"".join(piece.tobytes() for piece in pieces)


@every_optimiser
def test_a_step_changes_nothing_that_it_is_given(optimiser: Optimiser) -> None:
    """A strategy may keep old parameters, gradients and states, and step from them again."""
    params, grad = np.linspace(-1, 1, 9), np.linspace(1, 2, 9)
    _, state = optimiser.update_params(params, grad, optimiser.init_state(params))
    before = [array.tobytes() for array in (params, grad, *state.slots)]

    once, _ = optimiser.update_params(params, grad, state)
    twice, _ = optimiser.update_params(params, grad, state)

    assert [array.tobytes() for array in (params, grad, *state.slots)] == before
    assert once.tobytes() == twice.tobytes()


@every_optimiser
def test_without_gradient_and_decay_nothing_moves(optimiser: Optimiser) -> None:
    """Padding, and parameters that no sample touches, keep their value."""
    params = np.linspace(-1, 1, 9)

    after, state = trained(optimiser.model_copy(update={"weight_decay": 0.0}), params, np.zeros((3, 9)))

    assert after.tobytes() == params.tobytes()
    assert state.update_count == 3


@every_optimiser
def test_decay_alone_pulls_towards_zero(optimiser: Optimiser) -> None:
    """The sign of the penalty, whatever the rule does with it."""
    params = np.array([-2.0, 2.0])

    after, _ = trained(optimiser.model_copy(update={"weight_decay": 0.1}), params, np.zeros((3, 2)))

    assert (abs(after) < abs(params)).all()


@every_optimiser
def test_parameters_and_slots_keep_the_type_of_the_parameters(optimiser: Optimiser, device: Device) -> None:
    """A Python float in the rule must not turn fp32 into fp64, on any device."""
    params = device.to_device(np.linspace(-1, 1, 9, dtype="float32"))

    after, state = trained(optimiser, params, device.to_device(np.ones((3, 9), "float32")))

    assert {array.dtype for array in (after, *state.slots)} == {np.dtype("float32")}


@every_optimiser
def test_it_finds_the_bottom_of_a_bowl(optimiser: Optimiser, device: Device) -> None:
    """The gradient of |θ|²/2 is θ: whatever the rule, it must go down, on every device."""
    params = device.to_device(np.array([-1.0, 0.5]))
    state = optimiser.init_state(params)

    for _ in range(400):
        params, state = optimiser.update_params(params, params, state)

    assert abs(device.to_host(params)).max() < 1e-2
