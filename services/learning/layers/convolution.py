"""Convolution of images, as a matrix product with their patches."""

from dataclasses import dataclass
from itertools import product
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
from services.learning.layers.initialisation import VarianceRule, glorot_variance
from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray, array_namespace


@dataclass(frozen=True)
class Conv2d(Layer):
    """Convolution of images, with stride 1 and without padding.

    y[o] = bias[o] + Σ_c x[c] ⋆ w[o, c].

    Shapes: x (C, H, W, B), w (O, C, K, K), y (O, H - K + 1, W - K + 1, B). It is one matrix product with the patches of
    the images (im2col): K. Chellapilla et al., "High performance convolutional neural networks for document
    processing", IWFHR 2006.
    """

    name: str
    channels: int
    outputs: int
    kernel: int  # K
    variance: VarianceRule = glorot_variance

    def parameter_shapes(self) -> dict[str, Shape]:
        return {
            f"{self.name}.weight": (self.outputs, self.channels, self.kernel, self.kernel),
            f"{self.name}.bias": (self.outputs,),
        }

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        area = self.kernel**2
        weight = rng.standard_normal((self.outputs, self.channels, self.kernel, self.kernel))
        weight *= np.sqrt(self.variance(self.channels * area, self.outputs * area))
        return {f"{self.name}.weight": weight, f"{self.name}.bias": np.zeros(self.outputs)}

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - the same in training and evaluation
        weight, bias = arrays[f"{self.name}.weight"], arrays[f"{self.name}.bias"]
        weight_rows, patch_columns = weight.reshape(self.outputs, -1), extract_patches(x, self.kernel)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad_rows = output_grad.reshape(self.outputs, -1)
            yield ArrayGradient(f"{self.name}.bias", grad_rows.sum(axis=1))
            yield ArrayGradient(f"{self.name}.weight", (grad_rows @ patch_columns.T).reshape(weight.shape))
            return sum_patches(weight_rows.T @ grad_rows, x.shape, self.kernel) if needs_input_grad else None

        y = weight_rows @ patch_columns + bias[:, None]
        return y.reshape(self._output_shape(x.shape[:3]) + x.shape[3:]), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        output_shape = self._output_shape(input_shape)
        flops = 2.0 * prod(output_shape) * self.channels * self.kernel**2
        return LayerCost(output_shape, {f"{self.name}.weight": flops})

    def _output_shape(self, input_shape: Shape) -> Shape:
        _, height, width = input_shape
        return self.outputs, height - self.kernel + 1, width - self.kernel + 1


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
