"""Every compensation of delay through one battery: nothing to correct, nothing corrected; ranges alone as the whole."""

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
from services.runtime.device import Device

EXAMPLES: list[DelayCompensation] = [NoCompensation(), DcAsgd(), AdaptiveDcAsgd(), AdaptiveDcAsgd(momentum=0.0)]
WEAK: list[DelayCompensation] = [NoCompensation(), DcAsgd(strength=0.0), AdaptiveDcAsgd(strength=0.0)]  # λ = 0

every_compensation = pytest.mark.parametrize("compensation", EXAMPLES, ids=repr)


def test_every_member_of_the_family_stands_in_the_tables() -> None:
    """One that is not in them is not tested."""
    union, _ = get_args(AnyDelayCompensation)

    assert {type(member) for member in EXAMPLES} == {type(member) for member in WEAK} == set(get_args(union))


@every_compensation
def test_it_is_read_from_what_it_writes(compensation: DelayCompensation) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyDelayCompensation).validate_json(compensation.model_dump_json()) == compensation


def vectors(device: Device, dtype: str = "float64") -> tuple[Any, ...]:
    """A gradient, the parameters, and those that were read."""
    drawn = np.random.default_rng(1).normal(size=(3, 100)).astype(dtype)
    return tuple(device.to_device(vector) for vector in drawn)


@every_compensation
def test_a_gradient_of_the_parameters_themselves_stays_as_it_is(
    compensation: DelayCompensation, device: Device
) -> None:
    """To the last bit: nothing has happened since."""
    gradient, params, _ = vectors(device)

    made, _ = compensation.compensate(gradient, params, params, compensation.init_state(params))

    assert device.to_host(made).tobytes() == device.to_host(gradient).tobytes()


@pytest.mark.parametrize("weak", WEAK, ids=repr)
def test_without_strength_a_gradient_stays_as_it_is(weak: DelayCompensation, device: Device) -> None:
    """λ = 0 is asynchronous SGD to the last bit."""
    gradient, params, read = vectors(device)

    made, _ = weak.compensate(gradient, params, read, weak.init_state(params))

    assert device.to_host(made).tobytes() == device.to_host(gradient).tobytes()


@every_compensation
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ranges_compensated_alone_are_bitwise_the_whole(
    compensation: DelayCompensation, dtype: str, device: Device
) -> None:
    """That is what lets servers hold ranges; and the type of the parameters is kept."""
    gradient, params, read = vectors(device, dtype)
    chunks = equal_vector_ranges(100, 3)
    whole, parts = compensation.init_state(params), [compensation.init_state(chunk.view(params)) for chunk in chunks]

    for _ in range(2):  # the second time with a memory
        made, whole = compensation.compensate(gradient, params, read, whole)
        pieces = []
        for number, chunk in enumerate(chunks):
            own = chunk.view(gradient), chunk.view(params), chunk.view(read)
            piece, parts[number] = compensation.compensate(*own, parts[number])
            pieces.append(device.to_host(piece))

    assert np.concatenate(pieces).tobytes() == device.to_host(made).tobytes()
    assert made.dtype == np.dtype(dtype)


def test_it_follows_its_formulas(device: Device) -> None:
    """g + λ·g⊙g⊙(w - w_bak), with λ as given and with λ₀/√(m·s + (1-m)·g⊙g + ε)."""
    gradient, params, read, zero = (device.to_device(np.array([value])) for value in (2.0, 1.0, 0.5, 0.0))
    slow = AdaptiveDcAsgd(strength=0.3, momentum=0.75, epsilon=3.0)

    constant, _ = DcAsgd(strength=0.1).compensate(gradient, params, read, None)
    adaptive, mean = slow.compensate(gradient, params, read, zero)

    assert float(constant[0]) == pytest.approx(2 + 0.1 * 4 * 0.5)
    assert float(mean[0]) == pytest.approx(1.0)
    assert float(adaptive[0]) == pytest.approx(2 + 0.3 / 2 * 4 * 0.5)


def test_where_the_squared_gradient_is_the_hessian_the_guess_is_near_the_fresh_gradient() -> None:
    """Loss (w - y)²/2 with y of variance one, near its optimum: the mean of g⊙g is about the Hessian, which is 1."""
    read, now, noise = 0.1, 0.6, np.random.default_rng(1).normal(size=20_000)
    stale, fresh = read + noise, now + noise

    guess, _ = DcAsgd(strength=1.0).compensate(stale, np.full(20_000, now), np.full(20_000, read), None)

    assert abs(np.mean(guess - fresh)) < 0.1 * abs(np.mean(stale - fresh))
