"""Layers of a neural network, each with its forward pass and its backward pass.

B samples · C channels · H side of an image · I inputs, O outputs · K side of a kernel · P = H - K + 1, its positions.
Rows of numbers are (B, I). Images are (C, H, H, B), samples last: then a convolution is one matrix product for the
whole batch, and every slice in it reads memory in order (twice as fast as samples first).
dy, dx: gradients of the loss with respect to a layer's output and input, of the same shapes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray, array_namespace

VarianceRule: TypeAlias = Callable[[int, int], float]  # (fan in, fan out) -> variance of the initial weights


def glorot_variance(fan_in: int, fan_out: int) -> float:
    """Return the initial weight variance for linear or tanh layers (Glorot).

    It preserves variances through such layers. X. Glorot, Y. Bengio, AISTATS 2010, eq. 12.
    """
    return 2 / (fan_in + fan_out)


def he_variance(fan_in: int, fan_out: int) -> float:  # noqa: ARG001 - one signature for both rules
    """Return the initial weight variance for layers with ReLU (He).

    It keeps the scale of signals constant through such layers. K. He et al., ICCV 2015, eq. 10.
    """
    return 2 / fan_in


class LayerGradientFunctions(NamedTuple):
    """Backward pass of a layer: two functions of the gradient of the layer's output.

    The gradient of the output is called dy. The functions are separate because the gradient of the first layer's input
    is never needed.
    """

    input_grad: Callable[[Array], Array]  # dy -> dx
    parameter_grads: Callable[[Array], tuple[Array, ...]]  # dy -> gradients of the layer's arrays, in their order


class Layer(ABC):
    """Layer of a neural network: a differentiable function of a batch of inputs.

    The function also depends on the layer's weights and biases.
    """

    @abstractmethod
    def parameter_shapes(self) -> dict[str, Shape]:
        """Return names and shapes of the layer's arrays, in the order of the parameter vector."""

    @abstractmethod
    def init_arrays(self, rng: np.random.Generator) -> tuple[HostArray, ...]:
        """Return initial values of the layer's arrays of weights and biases."""

    @abstractmethod
    def forward(self, parameter_arrays: tuple[Array, ...], x: Array) -> tuple[Array, LayerGradientFunctions]:
        """Return the output of the layer, and the functions of its backward pass.

        The output is that for the input `x`; the functions compute the gradients.
        """


@dataclass(frozen=True)
class Dense(Layer):
    """Dense layer: y = x·w + b, with input x, weights w, biases b and output y.

    The shapes are x (B, I), w (I, O), b (O,) and y (B, O).
    """

    inputs: int
    outputs: int
    variance: VarianceRule = glorot_variance

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.inputs, self.outputs), "bias": (self.outputs,)}

    def init_arrays(self, rng: np.random.Generator) -> tuple[HostArray, ...]:
        weight = rng.standard_normal((self.inputs, self.outputs))
        return weight * np.sqrt(self.variance(self.inputs, self.outputs)), np.zeros(self.outputs)

    def forward(self, parameter_arrays: tuple[Array, ...], x: Array) -> tuple[Array, LayerGradientFunctions]:
        w, b = parameter_arrays
        return x @ w + b, LayerGradientFunctions(lambda dy: dy @ w.T, lambda dy: (x.T @ dy, dy.sum(axis=0)))


@dataclass(frozen=True)
class Conv2d(Layer):
    """Convolution of images, with stride 1 and without padding.

    y[o] = bias[o] + Σ_c x[c] ⋆ w[o, c].

    Shapes: x (C, H, H, B), w (O, C, K, K), y (O, P, P, B). It is one matrix product with the patches of the images
    (im2col): K. Chellapilla et al., "High performance convolutional neural networks for document processing", IWFHR
    2006.
    """

    channels: int
    outputs: int
    kernel: int  # K
    side: int  # H
    variance: VarianceRule = glorot_variance

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.outputs, self.channels, self.kernel, self.kernel), "bias": (self.outputs,)}

    def init_arrays(self, rng: np.random.Generator) -> tuple[HostArray, ...]:
        area = self.kernel**2
        weight = rng.standard_normal(self.parameter_shapes()["weight"])
        return weight * np.sqrt(self.variance(self.channels * area, self.outputs * area)), np.zeros(self.outputs)

    def forward(self, parameter_arrays: tuple[Array, ...], x: Array) -> tuple[Array, LayerGradientFunctions]:
        w, bias = parameter_arrays
        weight_rows, patch_columns = w.reshape(self.outputs, -1), extract_patches(x, self.kernel)

        def compute_conv_input_grad(conv_output_grad: Array) -> Array:
            return sum_patches(weight_rows.T @ conv_output_grad.reshape(self.outputs, -1), x.shape, self.kernel)

        def compute_conv_param_grads(conv_output_grad: Array) -> tuple[Array, ...]:
            conv_output_grad = conv_output_grad.reshape(self.outputs, -1)
            return (conv_output_grad @ patch_columns.T).reshape(w.shape), conv_output_grad.sum(axis=1)

        y = weight_rows @ patch_columns + bias[:, None]
        output_shape = (self.outputs, self._output_side, self._output_side, x.shape[-1])
        return y.reshape(output_shape), LayerGradientFunctions(compute_conv_input_grad, compute_conv_param_grads)

    @property
    def _output_side(self) -> int:
        return self.side - self.kernel + 1


@dataclass(frozen=True)
class ParameterFreeLayer(Layer):
    """A layer without weights and biases."""

    def parameter_shapes(self) -> dict[str, Shape]:
        return {}

    def init_arrays(self, rng: np.random.Generator) -> tuple[HostArray, ...]:  # noqa: ARG002 - it has no arrays
        return ()

    def forward(self, parameter_arrays: tuple[Array, ...], x: Array) -> tuple[Array, LayerGradientFunctions]:  # noqa: ARG002 - see above
        y, input_grad = self.forward_with_grad_function(x)
        return y, LayerGradientFunctions(input_grad, lambda _: ())

    @abstractmethod
    def forward_with_grad_function(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return the output of the layer, and the function that computes its gradient.

        The output is that for the input `x`; the function returns the input's gradient, given the output's gradient.
        """


@dataclass(frozen=True)
class Relu(ParameterFreeLayer):
    """Rectifier: y = max(x, 0); the slope at 0 is 0."""

    variance: VarianceRule = he_variance

    def forward_with_grad_function(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        return x.clip(0), lambda dy: dy * (x > 0)


@dataclass(frozen=True)
class Tanh(ParameterFreeLayer):
    """Hyperbolic tangent: y = tanh x, with the slope 1 - y²."""

    variance: VarianceRule = glorot_variance

    def forward_with_grad_function(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        y = array_namespace(x).tanh(x)
        return y, lambda dy: dy * (1 - y * y)


@dataclass(frozen=True)
class AveragePool(ParameterFreeLayer):
    """Average pooling layer: the mean of every 2x2 block of an image's pixels.

    The shapes are (C, H, H, B) → (C, H/2, H/2, B), with H even.
    """

    def forward_with_grad_function(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        block_sums = x[:, ::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, ::2] + x[:, 1::2, 1::2]
        return block_sums / 4, lambda dy: upsample(dy / 4, 2)


@dataclass(frozen=True)
class Flatten(ParameterFreeLayer):
    """Layer that converts images to rows of numbers.

    B images of C channels and H·H pixels, shape (C, H, H, B), become rows of shape (B, C·H·H).
    """

    def forward_with_grad_function(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        return x.reshape(-1, x.shape[-1]).T, lambda dy: dy.T.reshape(x.shape)


ACTIVATIONS: dict[str, Relu | Tanh] = {"relu": Relu(), "tanh": Tanh()}


def extract_patches(images: Array, kernel_side: int) -> Array:
    """Return every square patch of a batch of images, as a column (im2col).

    Images of shape (C, H, H, B) and patches of K·K pixels give columns of shape (C·K·K, P·P·B). Here P = H - K + 1.
    """
    sliding_window_view = array_namespace(images).lib.stride_tricks.sliding_window_view
    windows = sliding_window_view(images, (kernel_side, kernel_side), axis=(1, 2))
    channels, *positions, _, _ = windows.shape
    return windows.transpose(0, 4, 5, 1, 2, 3).reshape(channels * kernel_side**2, prod(positions))


def sum_patches(patch_columns: Array, image_shape: Shape, kernel_side: int) -> Array:
    """Return images that are sums of overlapping patches (col2im).

    `image_shape` is the shape (C, H, H, B) of the images. Each pixel is the sum of its values in all patches that
    contain it. The function is the adjoint of `extract_patches`.
    """
    channels, side, _, batch = image_shape
    positions = side - kernel_side + 1
    patch_columns = patch_columns.reshape(channels, kernel_side, kernel_side, positions, positions, batch)
    images = array_namespace(patch_columns).zeros(image_shape, patch_columns.dtype)
    for i, j in product(range(kernel_side), repeat=2):
        images[:, i : i + positions, j : j + positions] += patch_columns[:, i, j]
    return images


def upsample(images: Array, factor: int) -> Array:
    """Return images enlarged by an integer factor (nearest neighbour).

    The images have the shape (C, H, H, B); every pixel becomes factor x factor pixels.
    """
    return images.repeat(factor, axis=1).repeat(factor, axis=2)


def flatten_samples(samples: Array) -> Array:
    """Return each sample of a batch as one row of numbers.

    Samples of shape (B, …) become rows of shape (B, I).
    """
    return samples.reshape(len(samples), -1)
