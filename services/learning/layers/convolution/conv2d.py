"""Convolution layer for images."""

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
from services.learning.layers.convolution.correlation import Correlation
from services.learning.layers.convolution.patch_correlation import PatchCorrelation
from services.learning.layers.convolution.row_correlation import CorrelationAxis, RowCorrelation
from services.learning.layers.initialisation import VarianceRule, glorot_variance
from services.learning.layers.windows import SlidingWindow
from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray


@dataclass(frozen=True)
class Conv2d(Layer):
    """Convolution of images, with square kernels.

    y[o] = bias[o] + Σ_c x[c] ⋆ w[o, c]. The kernel moves by `stride` pixels over images with a border of `padding`
    zeros. With g groups, channels and outputs are cut into g equal parts, and the outputs of a part see only the
    channels of the same part. With as many groups as channels, the convolution is depthwise.

    Shapes: x (C, H, W, B), w (O, C/g, K, K), y (O, P, Q, B), where P = ⌊(H + 2·padding - K) / stride⌋ + 1, and Q
    likewise.
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
        weight, correlation = arrays[f"{self.name}.weight"], self._correlation
        kernels, images = self._by_group(weight), self._by_group(x)
        y = correlation.correlate(images, kernels).reshape(self._output_shape(x.shape) + x.shape[3:])
        if self.has_bias:
            y += arrays[f"{self.name}.bias"][:, None, None, None]

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            if self.has_bias:
                yield ArrayGradient(f"{self.name}.bias", output_grad.reshape(self.outputs, -1).sum(axis=1))
            grad = self._by_group(output_grad)
            kernel_grad = correlation.kernel_gradient(images, grad, kernels.shape)
            yield ArrayGradient(f"{self.name}.weight", kernel_grad.reshape(weight.shape))
            if not needs_input_grad:
                return None
            return correlation.image_gradient(images.shape, grad, kernels).reshape(x.shape)

        return y, backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        output_shape = self._output_shape(input_shape)
        flops = 2.0 * prod(output_shape) * self.channels // self.groups * self.kernel**2
        return LayerCost(output_shape, {f"{self.name}.weight": flops})

    def _by_group(self, array: Array) -> Array:
        """Return an array whose first axis are channels or outputs with this axis cut into groups: (G, C/G, …)."""
        return array.reshape(self.groups, len(array) // self.groups, *array.shape[1:])

    def _output_shape(self, input_shape: Shape) -> Shape:
        return self.outputs, *self._window.output_sides(input_shape)

    @property
    def _correlation(self) -> Correlation:
        """The way of computing: without padding, it has always been one product, and results keep their bits."""
        if self.stride == 1 and self.padding == 0:
            return PatchCorrelation()
        axis = CorrelationAxis(self.stride, self.padding, self.padding)
        return RowCorrelation(axis, axis)

    @property
    def _window(self) -> SlidingWindow:
        return SlidingWindow(self.kernel, self.stride, self.padding)

    @property
    def _weight_shape(self) -> Shape:
        return self.outputs, self.channels // self.groups, self.kernel, self.kernel
