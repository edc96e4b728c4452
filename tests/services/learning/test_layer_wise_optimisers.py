"""LAMB and LARS equal the pseudo-code of their papers, written here array by array in plain NumPy."""

import numpy as np
import pytest

from services.learning.layout import ParameterLayout
from services.learning.optimisers import Lamb, Lars
from services.learning.parameter_updater import ParameterUpdater
from services.learning.schedules import PolynomialSchedule
from services.runtime.device import ComputeDevice
from services.schema.arrays import Array, HostArray

UPDATES = 12
LAYOUT = ParameterLayout(arrays=(("weight", (5, 4)), ("bias", (4,)), ("filters", (3, 2, 2)), ("zeros", (2, 3))))
BIAS = "bias"  # the only array with one axis


def initial_arrays() -> dict[str, HostArray]:
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal(shape) for name, shape in LAYOUT.arrays}
    return arrays | {"zeros": np.zeros((2, 3))}  # as the second matrix of an adapter starts


def gradient(arrays: dict[str, HostArray], t: int) -> dict[str, HostArray]:
    """Return a gradient that depends on the parameters, so that every error changes later updates."""
    return {name: array + np.cos(np.arange(array.size) + t).reshape(array.shape) for name, array in arrays.items()}


def norm(array: HostArray) -> float:
    return float(np.sqrt((array**2).sum()))


def lamb_of_the_paper(optimiser: Lamb, t: int, x: HostArray, g: HostArray, m: HostArray, v: HostArray) -> HostArray:
    """Algorithm 2 of You et al. (2020) for one layer, t from 1; m and v are changed in place."""
    m[:] = optimiser.beta1 * m + (1 - optimiser.beta1) * g
    v[:] = optimiser.beta2 * v + (1 - optimiser.beta2) * g**2
    m_hat, v_hat = m / (1 - optimiser.beta1**t), v / (1 - optimiser.beta2**t)
    r = m_hat / (np.sqrt(v_hat) + optimiser.epsilon)
    u = r + optimiser.weight_decay * x
    ratio = norm(x) / norm(u) if norm(x) and norm(u) else 1.0
    return x - optimiser.rate * ratio * u


def lars_of_the_paper(optimiser: Lars, rate: float, w: HostArray, g: HostArray, v: HostArray) -> HostArray:
    """Algorithm 1 of You et al. (2017) for one layer, with the global learning rate `rate`; v is changed in place."""
    beta = optimiser.weight_decay
    local = optimiser.trust_coefficient * norm(w) / (norm(g) + beta * norm(w)) if norm(w) else 1.0
    v[:] = optimiser.momentum * v + rate * local * (g + beta * w)
    return w - v


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("adapt_one_axis", [False, True])
def test_lamb_equals_the_algorithm_of_the_paper(
    weight_decay: float, *, adapt_one_axis: bool, device: ComputeDevice
) -> None:
    """Exempt arrays take Adam's step without decay."""
    optimiser = Lamb(rate=0.1, beta2=0.95, weight_decay=weight_decay, adapt_one_axis=adapt_one_axis)
    arrays = initial_arrays()
    moments = {name: (np.zeros_like(array), np.zeros_like(array)) for name, array in arrays.items()}
    params = device.to_device(LAYOUT.pack(arrays))
    state = optimiser.init_state(params)

    for t in range(1, UPDATES + 1):
        grads = gradient(arrays, t)
        params, state = optimiser.update_params(params, to_vector(device, grads), state, LAYOUT.array_ranges)
        for name, (m, v) in moments.items():
            step = adam_of_the_paper if name == BIAS and not adapt_one_axis else lamb_of_the_paper
            arrays[name] = step(optimiser, t, arrays[name], grads[name], m, v)

    np.testing.assert_allclose(device.to_host(params), LAYOUT.pack(arrays), rtol=1e-12)


def adam_of_the_paper(optimiser: Lamb, t: int, x: HostArray, g: HostArray, m: HostArray, v: HostArray) -> HostArray:
    """Algorithm 1 of Kingma and Ba (2015), t from 1; m and v are changed in place."""
    m[:] = optimiser.beta1 * m + (1 - optimiser.beta1) * g
    v[:] = optimiser.beta2 * v + (1 - optimiser.beta2) * g**2
    m_hat, v_hat = m / (1 - optimiser.beta1**t), v / (1 - optimiser.beta2**t)
    return x - optimiser.rate * m_hat / (np.sqrt(v_hat) + optimiser.epsilon)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("adapt_one_axis", [False, True])
def test_lars_equals_the_algorithm_of_the_paper(
    weight_decay: float, *, adapt_one_axis: bool, device: ComputeDevice
) -> None:
    """With the paper's polynomial decay rate·(1 - t/T)², which the velocity remembers."""
    optimiser = Lars(rate=2.0, trust_coefficient=0.05, weight_decay=weight_decay, adapt_one_axis=adapt_one_axis)
    schedule = PolynomialSchedule(power=2)
    updater = ParameterUpdater(optimiser, schedule, sample_budget=8 * UPDATES, arrays=LAYOUT.array_ranges)
    arrays = initial_arrays()
    velocities = {name: np.zeros_like(array) for name, array in arrays.items()}
    params = device.to_device(LAYOUT.pack(arrays))
    state = updater.init_state(params)

    for t in range(UPDATES):
        grads, rate = gradient(arrays, t), optimiser.rate * (1 - t / UPDATES) ** 2
        params, state = updater.update_params(params, to_vector(device, grads), state, samples_before=8 * t)
        for name, velocity in velocities.items():
            if name == BIAS and not adapt_one_axis:
                velocity[:] = optimiser.momentum * velocity + rate * grads[name]
                arrays[name] = arrays[name] - velocity
            else:
                arrays[name] = lars_of_the_paper(optimiser, rate, arrays[name], grads[name], velocity)

    np.testing.assert_allclose(device.to_host(params), LAYOUT.pack(arrays), rtol=1e-12)


def to_vector(device: ComputeDevice, arrays: dict[str, HostArray]) -> Array:
    return device.to_device(LAYOUT.pack(arrays))
