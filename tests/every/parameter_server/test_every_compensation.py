"""Tests of every delay compensation: fresh gradients are not changed, and ranges are compensated independently."""

from typing import Any, get_args

import numpy as np
import pytest
from pydantic import TypeAdapter

from services.learning.layout import equal_vector_ranges
from services.parameter_server.compensation import (
    AdaptiveDcAsgd,
    AnyDelayCompensation,
    DcAsgd,
    DelayCompensation,
    NoCompensation,
)
from services.runtime.device import ComputeDevice

EXAMPLES: list[DelayCompensation] = [NoCompensation(), DcAsgd(), AdaptiveDcAsgd(), AdaptiveDcAsgd(momentum=0.0)]
WEAK: list[DelayCompensation] = [NoCompensation(), DcAsgd(strength=0.0), AdaptiveDcAsgd(strength=0.0)]  # λ = 0

every_compensation = pytest.mark.parametrize("compensation", EXAMPLES, ids=repr)


def test_examples_tables_contain_every_compensation() -> None:
    """A compensation that is not in the tables is not tested."""
    union, _ = get_args(AnyDelayCompensation)

    assert {type(member) for member in EXAMPLES} == {type(member) for member in WEAK} == set(get_args(union))


@every_compensation
def test_compensation_survives_a_json_round_trip(compensation: DelayCompensation) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyDelayCompensation).validate_json(compensation.model_dump_json()) == compensation


def make_vectors(device: ComputeDevice, dtype: str = "float64") -> tuple[Any, ...]:
    """Return a gradient, the parameters, and the parameters that the worker had read."""
    vectors_on_host = np.random.default_rng(1).normal(size=(3, 100)).astype(dtype)
    return tuple(device.to_device(vector) for vector in vectors_on_host)


@every_compensation
def test_gradient_without_delay_is_not_changed(compensation: DelayCompensation, device: ComputeDevice) -> None:
    """Bitwise: the parameters have not changed since they were read."""
    gradient, params, _ = make_vectors(device)

    compensated, _ = compensation.compensate(gradient, params, params, compensation.init_state(params))

    assert device.to_host(compensated).tobytes() == device.to_host(gradient).tobytes()


@pytest.mark.parametrize("compensation", WEAK, ids=repr)
def test_strength_zero_does_not_change_a_gradient(compensation: DelayCompensation, device: ComputeDevice) -> None:
    """With λ = 0 the result is bitwise that of asynchronous SGD."""
    gradient, params, read = make_vectors(device)

    compensated, _ = compensation.compensate(gradient, params, read, compensation.init_state(params))

    assert device.to_host(compensated).tobytes() == device.to_host(gradient).tobytes()


@every_compensation
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compensating_ranges_separately_gives_bitwise_the_same_result(
    compensation: DelayCompensation, dtype: str, device: ComputeDevice
) -> None:
    """So servers can own ranges of the vector; the type of the parameters is kept."""
    gradient, params, read = make_vectors(device, dtype)
    chunks = equal_vector_ranges(100, 3)
    whole, parts = compensation.init_state(params), [compensation.init_state(chunk.view(params)) for chunk in chunks]

    for _ in range(2):  # the second time with a state
        compensated, whole = compensation.compensate(gradient, params, read, whole)
        pieces = []
        for number, chunk in enumerate(chunks):
            chunk_vectors = chunk.view(gradient), chunk.view(params), chunk.view(read)
            piece, parts[number] = compensation.compensate(*chunk_vectors, parts[number])
            pieces.append(device.to_host(piece))

    assert np.concatenate(pieces).tobytes() == device.to_host(compensated).tobytes()
    assert compensated.dtype == np.dtype(dtype)


def test_compensation_follows_its_formula(device: ComputeDevice) -> None:
    """g + λ·g⊙g⊙(w - w_bak), with λ as given and with λ₀/√(m·s + (1-m)·g⊙g + ε)."""
    gradient, params, read, zero = (device.to_device(np.array([value])) for value in (2.0, 1.0, 0.5, 0.0))
    adaptive_rule = AdaptiveDcAsgd(strength=0.3, momentum=0.75, epsilon=3.0)

    constant, _ = DcAsgd(strength=0.1).compensate(gradient, params, read, None)
    adaptive, mean = adaptive_rule.compensate(gradient, params, read, zero)

    assert float(constant[0]) == pytest.approx(2 + 0.1 * 4 * 0.5)
    assert float(mean[0]) == pytest.approx(1.0)
    assert float(adaptive[0]) == pytest.approx(2 + 0.3 / 2 * 4 * 0.5)


def test_compensated_gradient_is_near_the_fresh_gradient_for_a_known_hessian() -> None:
    """Loss (w - y)²/2 with y of variance one, near its optimum: the mean of g⊙g is about the Hessian, which is 1."""
    read, current, noise = 0.1, 0.6, np.random.default_rng(1).normal(size=20_000)
    stale, fresh = read + noise, current + noise

    compensated, _ = DcAsgd(strength=1.0).compensate(stale, np.full(20_000, current), np.full(20_000, read), None)

    assert abs(np.mean(compensated - fresh)) < 0.1 * abs(np.mean(stale - fresh))
