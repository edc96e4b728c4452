"""Normalisation of images: to mean 0 and variance 1, then scaled and shifted by learned parameters."""

from dataclasses import dataclass
from math import prod

import numpy as np

from services.learning.layers.base import (
    ArrayGradient,
    BackwardPass,
    GradientGenerator,
    Layer,
    LayerCost,
    ParameterArrays,
    PassContext,
)
from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray, array_namespace

EPSILON = 1e-5  # added to variances, as in PyTorch


@dataclass(frozen=True)
class ScaledNorm(Layer):
    """Base class of normalisations with a learned scale and shift of every channel.

    y[c] = weight[c]·x̂[c] + bias[c], where x̂ is the normalised input. Images have the shape (C, H, W, B).
    """

    name: str
    channels: int

    def parameter_shapes(self) -> dict[str, Shape]:
        return {f"{self.name}.weight": (self.channels,), f"{self.name}.bias": (self.channels,)}

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:  # noqa: ARG002 - it starts without effect
        return {f"{self.name}.weight": np.ones(self.channels), f"{self.name}.bias": np.zeros(self.channels)}

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost(input_shape, {})


@dataclass(frozen=True)
class BatchNorm2d(ScaledNorm):
    """Batch normalisation: each channel is normalised over all pixels of all images of the batch.

    x̂ = (x - mean) / √(variance + ε). Shapes: x (C, H, W, B), mean and variance (C, 1). In training, mean and variance
    are those of the batch; the variance is the mean squared deviation (biased). S. Ioffe, C. Szegedy, "Batch
    normalization", ICML 2015.

    In evaluation, mean and variance are those of training samples under the evaluated parameters: a training pass over
    the samples records them (`recorded_statistics`), and the evaluation gets them (`fixed_statistics`). There are no
    running averages, so no state besides the parameters has to be synchronised between workers. Y. Wu, J. Johnson,
    "Rethinking 'Batch' in BatchNorm", arXiv:2105.07576, section 3.2 (PreciseBN).
    """

    @property
    def needs_calibration(self) -> bool:
        return True

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        weight, bias = (arrays[name][:, None] for name in self.parameter_shapes())
        shape, rows = x.shape, x.reshape(self.channels, -1)
        centred, variance = self._centre(rows, context)
        inverse_deviation = (variance + EPSILON) ** -0.5
        scale, count = weight * inverse_deviation, max(rows.shape[1], 1)
        y = centred * scale
        y += bias

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad_rows = output_grad.reshape(centred.shape)
            bias_grad = _sum_rows(grad_rows)
            yield ArrayGradient(f"{self.name}.bias", bias_grad[:, 0])
            weight_grad = _multiply_and_sum_rows(grad_rows, centred) * inverse_deviation
            yield ArrayGradient(f"{self.name}.weight", weight_grad[:, 0])
            if not needs_input_grad:
                return None
            if not context.is_training:
                return (grad_rows * scale).reshape(shape)
            # Mean and variance depend on the input, too.
            input_grad = centred * (weight_grad * inverse_deviation / -count)
            input_grad += grad_rows
            input_grad -= bias_grad / count
            input_grad *= scale
            return input_grad.reshape(shape)

        return y.reshape(shape), backward

    def _centre(self, rows: Array, context: PassContext) -> tuple[Array, Array]:
        """Return the rows of all channels without their means, and the variances, of shape (C, 1)."""
        if not context.is_training:
            mean, variance = (context.fixed_statistics or {})[self.name]
            return rows - mean, variance
        count = max(rows.shape[1], 1)
        mean = _sum_rows(rows) / count
        centred = rows - mean
        variance = _multiply_and_sum_rows(centred, centred) / count
        context.recorded_statistics[self.name] = mean, variance
        return centred, variance


@dataclass(frozen=True)
class GroupNorm(ScaledNorm):
    """Group normalisation: each image is normalised over all pixels of each group of channels.

    Shapes: x (C, H, W, B); with g groups, a group has C/g consecutive channels. It does not depend on the other images
    of the batch, so training and evaluation are the same. Y. Wu, K. He, "Group normalization", ECCV 2018.
    """

    groups: int = 1  # divides the channels

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - the same in training and evaluation
        channels, pixels, batch = self.channels // self.groups, prod(x.shape[1:3]), x.shape[3]
        size, count = (self.groups, channels, pixels, batch), channels * pixels
        weight, bias = (arrays[name].reshape(self.groups, channels, 1, 1) for name in self.parameter_shapes())
        by_group = x.reshape(self.groups, count, batch)
        centred = by_group - _sum_pixels(by_group) / count
        variance = _sum_pixels(centred * centred) / count
        inverse_deviation = ((variance + EPSILON) ** -0.5)[:, None]
        scale, shape = weight * inverse_deviation, x.shape
        y = centred.reshape(size) * scale
        y += bias

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad = output_grad.reshape(self.channels, pixels, batch)
            grad_sums = _sum_pixels(grad).reshape(scale.shape)
            yield ArrayGradient(f"{self.name}.bias", grad_sums.sum(axis=(2, 3)).reshape(self.channels))
            products = _sum_pixels(grad * centred.reshape(grad.shape)).reshape(scale.shape)
            weight_grad = (products * inverse_deviation).sum(axis=(2, 3))
            yield ArrayGradient(f"{self.name}.weight", weight_grad.reshape(self.channels))
            if not needs_input_grad:
                return None
            # Mean and variance depend on the input, too.
            slope = (products * scale).sum(axis=1) * inverse_deviation[:, 0] ** 2
            input_grad = centred * (slope / -count)
            input_grad -= (grad_sums * scale).sum(axis=1) / count
            input_grad = input_grad.reshape(size)
            input_grad += grad.reshape(size) * scale
            return input_grad.reshape(shape)

        return y.reshape(shape), backward


def _sum_rows(rows: Array) -> Array:
    """Return the sum of each row, of shape (rows, 1), as a matrix product: faster than the method `sum`."""
    return rows @ array_namespace(rows).ones((rows.shape[1], 1), rows.dtype)


def _multiply_and_sum_rows(first: Array, second: Array) -> Array:
    """Return the scalar product of each row of `first` with the same row of `second`, of shape (rows, 1)."""
    return (first[:, None, :] @ second[:, :, None])[:, 0]


def _sum_pixels(images: Array) -> Array:
    """Return sums over the second axis, (n, pixels, B) → (n, 1, B), as a matrix product: faster than `sum`."""
    return array_namespace(images).ones((1, images.shape[1]), images.dtype) @ images
