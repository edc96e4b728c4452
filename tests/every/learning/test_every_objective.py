"""Tests of every objective: gradients are right, losses are means over samples, metrics stay within their bounds."""

from collections.abc import Callable

import numpy as np
import pytest

from services.learning.objectives import OBJECTIVES, LossName
from services.learning.objectives.detection.anchors import DEFAULT_ANCHORS
from services.learning.tokens import IGNORED_TARGET
from services.runtime.device import ComputeDevice
from services.schema.arrays import HostArray

OutputsAndTargets = tuple[HostArray, HostArray]


def _scores_and_labels(rng: np.random.Generator, count: int) -> OutputsAndTargets:
    return rng.standard_normal((count, 5)), rng.integers(5, size=count)


def _values(rng: np.random.Generator, count: int) -> OutputsAndTargets:
    return rng.standard_normal((count, 3)), rng.standard_normal((count, 3))


def _noise_of_images(rng: np.random.Generator, count: int) -> OutputsAndTargets:
    return rng.standard_normal((count, 1, 4, 4)), rng.standard_normal((count, 1, 4, 4))


def _detected_and_true_boxes(rng: np.random.Generator, count: int) -> OutputsAndTargets:
    """Return outputs for images of 16x16 pixels with three classes, and targets; the last row is always unused."""
    outputs = rng.standard_normal((count, DEFAULT_ANCHORS.count(16), 3 + 4))
    corners, sides = rng.uniform(0, 8, (count, 3, 2)), rng.uniform(4, 8, (count, 3, 2))
    targets = np.concatenate([rng.integers(3, size=(count, 3, 1)), corners, corners + sides], axis=2)
    targets[:, -1] = -1, 0, 0, 0, 0
    return outputs, targets


def _scores_and_next_tokens(rng: np.random.Generator, count: int) -> OutputsAndTargets:
    return rng.standard_normal((count, 4, 5)), rng.integers(5, size=(count, 4))


def _scores_and_masked_tokens(rng: np.random.Generator, count: int) -> OutputsAndTargets:
    """Return scores of six positions, of which a sample has one to five targets; the others are ignored."""
    targets = rng.integers(5, size=(count, 6))
    target_counts = rng.integers(1, 6, size=(count, 1))
    return rng.standard_normal((count, 6, 5)), np.where(np.arange(6) < target_counts, targets, IGNORED_TARGET)


EXAMPLES: dict[LossName, Callable[[np.random.Generator, int], OutputsAndTargets]] = {
    "cross_entropy": _scores_and_labels,
    "mse": _values,
    "detection": _detected_and_true_boxes,
    "denoising": _noise_of_images,
    "next_token": _scores_and_next_tokens,
    "masked_token": _scores_and_masked_tokens,
}

every_objective = pytest.mark.parametrize("loss", EXAMPLES)


def example(loss: LossName, count: int, dtype: str = "float64") -> OutputsAndTargets:
    """Return random outputs and targets of `count` samples."""
    outputs, targets = EXAMPLES[loss](np.random.default_rng(3), count)
    return outputs.astype(dtype), targets if targets.dtype == np.int64 else targets.astype(dtype)


def test_examples_table_contains_every_objective() -> None:
    """An objective that is not in the table is not tested."""
    assert set(EXAMPLES) == set(OBJECTIVES)


@every_objective
def test_output_gradient_agrees_with_finite_differences(loss: LossName) -> None:
    """Every layer multiplies by this gradient, so an error in it is an error everywhere. Every entry is compared.

    The largest loss is 17, and fp64 rounds such sums by some 1e-15, which becomes up to 1e-9 when divided by 2h.
    """
    outputs, targets = example(loss, 3)
    objective, h = OBJECTIVES[loss], 1e-5
    _, grad = objective.loss_and_output_grad(outputs, targets)

    for index in np.ndindex(outputs.shape):
        step = np.zeros_like(outputs)
        step[index] = h
        ahead, _ = objective.loss_and_output_grad(outputs + step, targets)
        behind, _ = objective.loss_and_output_grad(outputs - step, targets)

        assert (ahead - behind) / (2 * h) == pytest.approx(grad[index], rel=1e-6, abs=1e-9), index


@every_objective
def test_loss_and_gradient_are_means_over_the_samples(loss: LossName) -> None:
    """Workers weight the gradients of their shares by samples, which is right only for means."""
    outputs, targets = example(loss, 4)
    objective = OBJECTIVES[loss]
    value, grad = objective.loss_and_output_grad(outputs, targets)

    single = [objective.loss_and_output_grad(outputs[[k]], targets[[k]]) for k in range(4)]

    assert value == pytest.approx(np.mean([single_value for single_value, _ in single]))
    np.testing.assert_allclose(grad, np.concatenate([single_grad for _, single_grad in single]) / 4, rtol=1e-10)


@every_objective
def test_metrics_have_their_declared_names_and_respect_their_best_values(loss: LossName) -> None:
    """A target is checked against the best value of its metric before a run; a model must not be able to exceed it."""
    outputs, targets = example(loss, 40)
    objective = OBJECTIVES[loss]

    values = objective.measure_quality(outputs, targets)

    assert set(values) == set(objective.metrics)
    for name, metric in objective.metrics.items():
        sign = 1 if metric.bound_key == "at_least" else -1
        assert sign * values[name] < sign * metric.best_value


@every_objective
def test_gradient_has_the_type_of_the_outputs(loss: LossName, device: ComputeDevice) -> None:
    """A gradient in fp64 would make all later gradients fp64, and double the bytes that are sent."""
    outputs, targets = map(device.to_device, example(loss, 3, "float32"))

    value, grad = OBJECTIVES[loss].loss_and_output_grad(outputs, targets)

    assert (grad.shape, grad.dtype, value.dtype) == (outputs.shape, np.dtype("float32"), np.dtype("float32"))


@every_objective
def test_loss_and_metrics_are_the_same_on_all_devices(loss: LossName, device: ComputeDevice) -> None:
    """Replicas on different devices train one model; except for rounding, they must compute the same loss."""
    outputs, targets = example(loss, 8)
    objective = OBJECTIVES[loss]
    value, grad = objective.loss_and_output_grad(outputs, targets)

    device_value, device_grad = objective.loss_and_output_grad(device.to_device(outputs), device.to_device(targets))

    assert float(device_value) == pytest.approx(float(value), rel=1e-12)
    np.testing.assert_allclose(device.to_host(device_grad), grad, rtol=1e-10, atol=1e-14)
    metrics = objective.measure_quality(device.to_device(outputs), device.to_device(targets))
    assert metrics == pytest.approx(objective.measure_quality(outputs, targets))


@every_objective
def test_objective_does_not_change_its_arguments(loss: LossName) -> None:
    """The backward pass still needs the outputs."""
    outputs, targets = example(loss, 3)
    before = outputs.copy(), targets.copy()

    OBJECTIVES[loss].loss_and_output_grad(outputs, targets)
    OBJECTIVES[loss].measure_quality(outputs, targets)

    np.testing.assert_array_equal(outputs, before[0])
    np.testing.assert_array_equal(targets, before[1])
