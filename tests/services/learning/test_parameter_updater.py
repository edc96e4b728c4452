"""Update of parameters: the schedule follows the samples, and long gradients are scaled to the largest norm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learning.optimisers import Sgd
from services.learning.parameter_updater import ParameterUpdater, clip_to_norm
from services.learning.schedules import CosineSchedule
from services.parameter_server.compensation import NoCompensation
from services.parameter_server.staleness import ExponentialWeighting
from services.parameter_server.update_rules import GradientUpdateRule, WorkerContribution
from services.runtime.device import ComputeDevice
from services.schema.arrays import euclidean_norm, without_divergence_warnings

SCHEDULE = CosineSchedule(warmup=0.1)


@pytest.mark.parametrize("samples_before", [0, 5, 10, 55, 100, 130])
def test_rate_of_an_update_follows_the_samples_before_it(samples_before: int) -> None:
    """The factor of the schedule and that of the caller are multiplied."""
    updater = ParameterUpdater(Sgd(rate=2.0), SCHEDULE, sample_budget=100)
    params, grad = np.zeros(3), np.ones(3)

    updated, _ = updater.update_params(params, grad, updater.init_state(params), samples_before, rate_factor=0.25)

    np.testing.assert_allclose(updated, -2.0 * 0.25 * SCHEDULE.rate_factor(samples_before / 100) * grad)


def test_server_multiplies_weight_of_staleness_share_of_the_batch_and_schedule() -> None:
    """An update with one gradient of four, one update old, in the middle of the warm-up; the mean is clipped first."""
    updater = ParameterUpdater(Sgd(rate=1.0), SCHEDULE, sample_budget=100, clip_norm=2.0)
    params, weighting = np.zeros(4), ExponentialWeighting(decay=0.5)
    state = updater.init_state(params)
    rule = GradientUpdateRule(params, updater, state, weighting, NoCompensation(), planned_gradients=4)

    rule.update_shard_params([WorkerContribution(0, 3, staleness=1, vector=np.full(4, 10.0))], samples_before=5)

    np.testing.assert_allclose(rule.params, np.full(4, -1.0) * weighting.weight(1) / 4 * 0.5)


@given(
    size=st.integers(1, 400),
    max_norm=st.floats(1e-3, 1e3),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_clipping_keeps_direction_and_type_and_limits_the_norm(
    size: int, max_norm: float, seed: int, dtype: str
) -> None:
    """A gradient within the limit keeps all its bits."""
    gradient = np.random.default_rng(seed).standard_normal(size).astype(dtype)
    norm = float(np.linalg.norm(gradient.astype("float64")))

    clipped = clip_to_norm(gradient, max_norm)

    assert clipped.dtype == gradient.dtype
    if norm < max_norm * (1 - 1e-6):
        assert clipped is gradient
    np.testing.assert_allclose(clipped, gradient * min(1.0, max_norm / norm), rtol=1e-5)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_gradient_without_a_finite_norm_is_not_hidden(value: float) -> None:
    """Scaled to a norm of 1 it would be zero or partly zero, and training would go on as if nothing had happened."""
    gradient = np.array([1.0, value, 2.0])

    with without_divergence_warnings():
        np.testing.assert_array_equal(clip_to_norm(gradient, 1.0), gradient)


def test_norm_is_exact_for_long_fp32_vectors(device: ComputeDevice) -> None:
    """A sum in fp32 would lose digits, more or fewer by the order of the sum."""
    vector = device.to_device(np.full(10_000_000, 0.1, "float32"))

    assert float(euclidean_norm(vector)) == pytest.approx(float(np.float32(0.1)) * 10_000_000**0.5, rel=1e-7)
