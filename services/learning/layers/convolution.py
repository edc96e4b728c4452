"""Convolution of images, as a matrix product with their patches."""

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
from services.learning.layers.initialisation import VarianceRule, glorot_variance
from services.learning.layers.windows import SlidingWindow
from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray, array_namespace


@dataclass(frozen=True)
class Conv2d(Layer):
    """Convolution of images, with square kernels.

    y[o] = bias[o] + Σ_c x[c] ⋆ w[o, c]. The kernel moves by `stride` pixels over images with a border of `padding`
    zeros. With g groups, channels and outputs are cut into g equal parts, and the outputs of a part see only the
    channels of the same part. With as many groups as channels, the convolution is depthwise.

    Shapes: x (C, H, W, B), w (O, C/g, K, K), y (O, P, Q, B), where P = ⌊(H + 2·padding - K) / stride⌋ + 1, and Q
    likewise. It is one matrix product with the patches of the images (im2col) for each group: K. Chellapilla et al.,
    "High performance convolutional neural networks for document processing", IWFHR 2006.
    """

    name: str
    channels: int
    outputs: int
    kernel: int  # K
    variance: VarianceRule = glorot_variance
    stride: int = 1
    padding: int = 0
    groups: int = 1  # divides channels and outputs
    has_bias: bool = True

    def parameter_shapes(self) -> dict[str, Shape]:
        weight: dict[str, Shape] = {f"{self.name}.weight": self._weight_shape}
        return weight | ({f"{self.name}.bias": (self.outputs,)} if self.has_bias else {})

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        area = self.kernel**2
        fans = self.channels // self.groups * area, self.outputs // self.groups * area
        weight = rng.standard_normal(self._weight_shape) * np.sqrt(self.variance(*fans))
        return dict(zip(self.parameter_shapes(), (weight, np.zeros(self.outputs)), strict=False))

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - the same in training and evaluation
        weight = arrays[f"{self.name}.weight"]
        weight_rows = weight.reshape(self.groups, self.outputs // self.groups, -1)
        patches = self._patches_by_group(x)
        y = (weight_rows @ patches).reshape(self._output_shape(x.shape) + x.shape[3:])
        if self.has_bias:
            y += arrays[f"{self.name}.bias"][:, None, None, None]

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad_rows = output_grad.reshape(self.groups, self.outputs // self.groups, -1)
            if self.has_bias:
                yield ArrayGradient(f"{self.name}.bias", output_grad.reshape(self.outputs, -1).sum(axis=1))
            weight_grad = grad_rows @ patches.transpose(0, 2, 1)
            yield ArrayGradient(f"{self.name}.weight", weight_grad.reshape(weight.shape))
            if not needs_input_grad:
                return None
            patches_grad = weight_rows.transpose(0, 2, 1) @ grad_rows
            return sum_patches(patches_grad, x.shape, self._window)

        return y, backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        output_shape = self._output_shape(input_shape)
        flops = 2.0 * prod(output_shape) * self.channels // self.groups * self.kernel**2
        return LayerCost(output_shape, {f"{self.name}.weight": flops})

    def _patches_by_group(self, x: Array) -> Array:
        columns = extract_patches(x, self._window)
        return columns.reshape(self.groups, len(columns) // self.groups, columns.shape[1])

    def _output_shape(self, input_shape: Shape) -> Shape:
        return self.outputs, *self._window.output_sides(input_shape)

    @property
    def _window(self) -> SlidingWindow:
        return SlidingWindow(self.kernel, self.stride, self.padding)

    @property
    def _weight_shape(self) -> Shape:
        return self.outputs, self.channels // self.groups, self.kernel, self.kernel


def extract_patches(images: Array, window: SlidingWindow) -> Array:
    """Return the pixels of a window at all its positions, one column per position and image (im2col).

    Images of shape (C, H, W, B) give columns of shape (C·K·K, P·Q·B), with a window of K·K pixels at P·Q positions.
    """
    sliding_window_view = array_namespace(images).lib.stride_tricks.sliding_window_view
    views = sliding_window_view(window.pad(images), (window.kernel, window.kernel), axis=(1, 2))
    columns = views[:, :: window.stride, :: window.stride].transpose(0, 4, 5, 1, 2, 3)
    return columns.reshape(prod(columns.shape[:3]), prod(columns.shape[3:]))


def sum_patches(columns: Array, image_shape: Shape, window: SlidingWindow) -> Array:
    """Return images whose pixels are sums over all positions of the window that contain them (col2im).

    `image_shape` is the shape (C, H, W, B) of the images. The function is the adjoint of `extract_patches`.
    """
    channels, height, width, batch = image_shape
    pixels = columns.reshape(channels, window.kernel**2, *window.output_sides(image_shape), batch)
    padded_shape = (channels, height + 2 * window.padding, width + 2 * window.padding, batch)
    padded = array_namespace(columns).zeros(padded_shape, columns.dtype)
    for number, pixel in enumerate(window.pixel_slices(image_shape)):
        padded[pixel] += pixels[:, number]
    return window.remove_padding(padded)
