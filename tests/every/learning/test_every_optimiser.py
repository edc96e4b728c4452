"""Tests of every optimiser: updates are pure, independent by entry or array, and zero for a zero gradient."""

from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from simulated_trial import SimulatedTrial

from services.checkpoints.state_tree import decode_state, encode_state
from services.learning.layout import ArrayRange, VectorRange, equal_vector_ranges
from services.learning.optimisers import Adam, AdamW, AnyOptimiser, Lamb, Lars, Momentum, Optimiser, OptimiserState, Sgd
from services.runtime.device import ComputeDevice
from services.schema.arrays import Vector
from services.strategies import AllReduce, ParameterServer, StrategySwitch

EXAMPLES: list[Optimiser] = [
    Sgd(rate=0.1),
    Sgd(rate=0.1, weight_decay=0.01),
    Momentum(rate=0.1),
    Momentum(rate=0.1, nesterov=True, weight_decay=0.01),
    Adam(rate=0.01),
    Adam(rate=0.01, weight_decay=0.01),
    AdamW(rate=0.01),
    AdamW(rate=0.01, weight_decay=0.1),
    Lamb(rate=0.05),
    Lamb(rate=0.05, weight_decay=0.01, adapt_one_axis=True),
    Lars(rate=1.0, trust_coefficient=0.02),
    Lars(rate=1.0, trust_coefficient=0.02, weight_decay=0.01, adapt_one_axis=True),
]

every_optimiser = pytest.mark.parametrize("optimiser", EXAMPLES, ids=repr)
every_element_wise_optimiser = pytest.mark.parametrize(
    "optimiser", [example for example in EXAMPLES if example.is_element_wise], ids=repr
)
every_layer_wise_optimiser = pytest.mark.parametrize(
    "optimiser", [example for example in EXAMPLES if not example.is_element_wise], ids=repr
)


def whole_vector(params: Vector) -> list[ArrayRange]:
    """Return the range of one array of weights that covers the whole vector."""
    return [ArrayRange(VectorRange(0, params.size), axis_count=2)]


def apply_gradients(
    optimiser: Optimiser, params: Vector, grads: Vector, arrays: Sequence[ArrayRange] | None = None
) -> tuple[Vector, OptimiserState]:
    """Return the parameters and the state after one update by each row of `grads`; by default for one array."""
    state, arrays = optimiser.init_state(params), whole_vector(params) if arrays is None else arrays
    for grad in grads:
        params, state = optimiser.update_params(params, grad, state, arrays)
    return params, state


def test_examples_table_contains_every_optimiser() -> None:
    """An optimiser that is not in the table is not tested."""
    union, _ = get_args(AnyOptimiser)

    assert {type(optimiser) for optimiser in EXAMPLES} == set(get_args(union))


@every_optimiser
def test_optimiser_survives_a_json_round_trip(optimiser: Optimiser) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyOptimiser).validate_json(optimiser.model_dump_json()) == optimiser


@every_element_wise_optimiser
@given(size=st.integers(1, 300), parts=st.integers(1, 9), seed=st.integers(0, 99))
def test_updating_ranges_separately_gives_bitwise_the_same_result(
    optimiser: Optimiser, size: int, parts: int, seed: int
) -> None:
    """Each parameter server owns a range: the model must be bitwise the same for any number of servers."""
    rng = np.random.default_rng(seed)
    params = rng.standard_normal(size).astype("float32")
    grads = rng.standard_normal((4, size)).astype("float32")

    whole, state = apply_gradients(optimiser, params, grads)
    shards = [
        apply_gradients(optimiser, r.view(params), grads[:, r.start : r.stop]) for r in equal_vector_ranges(size, parts)
    ]

    assert whole.tobytes() == b"".join(shard.tobytes() for shard, _ in shards)
    for slot, pieces in zip(state.slots, zip(*(s.slots for _, s in shards), strict=True), strict=True):
        assert slot.tobytes() == b"".join(piece.tobytes() for piece in pieces)


@every_layer_wise_optimiser
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_arrays_of_a_layer_wise_optimiser_are_updated_independently(
    optimiser: Optimiser, sizes: list[int], seed: int
) -> None:
    """Each array has its own norms: other arrays must not change its step."""
    rng, size = np.random.default_rng(seed), sum(sizes)
    params = rng.standard_normal(size).astype("float32")
    grads = rng.standard_normal((4, size)).astype("float32")
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    ranges = [VectorRange(start, start + length) for start, length in zip(starts, sizes, strict=True)]

    whole, _ = apply_gradients(optimiser, params, grads, [ArrayRange(part, 2) for part in ranges])
    alone = [apply_gradients(optimiser, part.view(params), grads[:, part.start : part.stop])[0] for part in ranges]

    assert whole.tobytes() == b"".join(array.tobytes() for array in alone)


@every_layer_wise_optimiser
def test_layer_wise_optimiser_rejects_a_part_of_the_arrays(optimiser: Optimiser) -> None:
    """A server with a part of the vector would train another model without any sign of it."""
    params = np.ones(9)

    with pytest.raises(ValueError, match=f"{optimiser.kind} needs all arrays; these have 8 of 9 entries"):
        optimiser.update_params(params, params, optimiser.init_state(params), [ArrayRange(VectorRange(0, 8), 2)])


@every_layer_wise_optimiser
def test_arrays_with_one_axis_are_adapted_and_decayed_only_if_declared(optimiser: Optimiser) -> None:
    """Biases start at zero, where a share of their norm would be no step at all."""
    params, grads = np.linspace(1, 2, 9), np.ones((1, 9))
    weights, biases = (
        apply_gradients(optimiser, params, grads, [ArrayRange(VectorRange(0, 9), axis_count)])[0]
        for axis_count in (2, 1)
    )

    assert np.array_equal(weights, biases) == optimiser.adapt_one_axis
    if not optimiser.adapt_one_axis:
        np.testing.assert_allclose(biases, params - optimiser.rate, rtol=1e-5)  # Adam's first step is 1, too


@every_optimiser
@pytest.mark.parametrize("factor", [0.0, 0.25, 3.0])
def test_factor_on_the_rate_equals_another_rate(optimiser: Optimiser, factor: float) -> None:
    """Schedules and stale gradients change the rate of single updates; zero is the start of a warm-up."""
    params, grad = np.linspace(-1, 1, 9), np.linspace(1, 2, 9)
    other = optimiser.model_copy(update={"rate": optimiser.rate * factor})

    scaled, _ = optimiser.update_params(params, grad, optimiser.init_state(params), whole_vector(params), factor)
    expected, _ = other.update_params(params, grad, other.init_state(params), whole_vector(params))

    assert scaled.tobytes() == expected.tobytes()
    assert np.array_equal(scaled, params) == (factor == 0)


@every_optimiser
def test_update_does_not_change_its_arguments(optimiser: Optimiser) -> None:
    """A strategy may keep old parameters, gradients and states, and update from them again."""
    params, grad = np.linspace(-1, 1, 9), np.linspace(1, 2, 9)
    arrays = whole_vector(params)
    _, state = optimiser.update_params(params, grad, optimiser.init_state(params), arrays)
    before = [array.tobytes() for array in (params, grad, *state.slots)]

    first, _ = optimiser.update_params(params, grad, state, arrays)
    second, _ = optimiser.update_params(params, grad, state, arrays)

    assert [array.tobytes() for array in (params, grad, *state.slots)] == before
    assert first.tobytes() == second.tobytes()


@every_optimiser
def test_zero_gradient_without_decay_changes_no_parameter(optimiser: Optimiser) -> None:
    """Padding, and parameters that no sample affects, keep their value."""
    params = np.linspace(-1, 1, 9)

    after, state = apply_gradients(optimiser.model_copy(update={"weight_decay": 0.0}), params, np.zeros((3, 9)))

    assert after.tobytes() == params.tobytes()
    assert state.update_count == 3


@every_optimiser
def test_weight_decay_alone_moves_parameters_towards_zero(optimiser: Optimiser) -> None:
    """The penalty has the right sign under every update rule."""
    params = np.array([-2.0, 2.0])

    after, _ = apply_gradients(optimiser.model_copy(update={"weight_decay": 0.1}), params, np.zeros((3, 2)))

    assert (abs(after) < abs(params)).all()


@every_optimiser
def test_parameters_and_slots_keep_the_type_of_the_parameters(optimiser: Optimiser, device: ComputeDevice) -> None:
    """A Python float in the rule must not convert fp32 to fp64, on any device."""
    params = device.to_device(np.linspace(-1, 1, 9, dtype="float32"))

    after, state = apply_gradients(optimiser, params, device.to_device(np.ones((3, 9), "float32")))

    assert {array.dtype for array in (after, *state.slots)} == {np.dtype("float32")}


@every_optimiser
def test_optimiser_finds_the_minimum_of_a_quadratic(optimiser: Optimiser, device: ComputeDevice) -> None:
    """The gradient of |θ|²/2 is θ: every rule must reach the minimum, on every device."""
    params = device.to_device(np.array([-1.0, 0.5]))
    state = optimiser.init_state(params)

    for _ in range(400):
        params, state = optimiser.update_params(params, params, state, whole_vector(params))

    assert abs(device.to_host(params)).max() < 1e-2


@every_optimiser
@pytest.mark.parametrize("switch", [StrategySwitch(), StrategySwitch(before=ParameterServer(), after=AllReduce())])
def test_state_moves_between_device_and_servers_at_a_switch(
    optimiser: Optimiser, switch: StrategySwitch, use_guarded_device: Callable[[], None]
) -> None:
    """The servers' state is in host memory and that of a worker on its device; both directions give the same bits."""
    document = {"optimiser": optimiser.model_dump(mode="json")}
    on_cpu = SimulatedTrial.of(switch, 6, 3, 6, **document)

    use_guarded_device()

    assert SimulatedTrial.of(switch, 6, 3, 6, **document).params_sha256 == on_cpu.params_sha256


@every_optimiser
def test_optimiser_continues_from_a_stored_state_with_the_same_bits(
    optimiser: Optimiser, device: ComputeDevice
) -> None:
    """A worker restores the state from a checkpoint to its device, and its next updates must not show it."""
    rng = np.random.default_rng(5)
    params, grads = device.to_device(rng.standard_normal(12)), device.to_device(rng.standard_normal((6, 12)))
    expected, _ = apply_gradients(optimiser, params, grads)

    params, state = apply_gradients(optimiser, params, grads[:3])
    encoded = encode_state((params, state), device.to_host)
    copied = encoded._replace(arrays=tuple(array.copy() for array in encoded.arrays))
    params, state = decode_state(copied, device.to_device)
    for grad in grads[3:]:
        params, state = optimiser.update_params(params, grad, state, whole_vector(params))

    assert device.to_host(params).tobytes() == device.to_host(expected).tobytes()
