"""Pooling of images: one number for each window of pixels."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import add

from services.learning.layers.base import LayerCost, ParameterFreeLayer, PassContext
from services.learning.layers.windows import SlidingWindow
from services.learning.layout import Shape
from services.schema.arrays import Array, array_namespace


@dataclass(frozen=True)
class AveragePool(ParameterFreeLayer):
    """Average pooling layer: the mean of every block of kernel x kernel pixels.

    The shapes are (C, H, W, B) → (C, ⌊H/kernel⌋, ⌊W/kernel⌋, B). Rows and columns beyond the last whole block are
    ignored.
    """

    kernel: int = 2

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - the same in training and evaluation
        area, shape, pixel_slices = self.kernel**2, x.shape, list(self._window.pixel_slices(x.shape))

        def input_grad(dy: Array) -> Array:
            shares, dx = dy / area, array_namespace(dy).zeros(shape, dy.dtype)
            for pixel in pixel_slices:
                dx[pixel] = shares
            return dx

        return reduce(add, (x[pixel] for pixel in pixel_slices)) / area, input_grad

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost((input_shape[0], *self._window.output_sides(input_shape)), {})

    @property
    def _window(self) -> SlidingWindow:
        return SlidingWindow(self.kernel, stride=self.kernel)


@dataclass(frozen=True)
class MaxPool2d(ParameterFreeLayer):
    """Maximum pooling layer: the largest pixel of every window.

    The window of kernel x kernel pixels moves by `stride` pixels over images with a border of `padding` pixels that are
    never the maximum. The shapes are (C, H, W, B) → (C, P, Q, B), where P = ⌊(H + 2·padding - kernel) / stride⌋ + 1,
    and Q likewise. The gradient goes to the largest pixel of a window, to the first of several, row by row.
    """

    kernel: int
    stride: int
    padding: int = 0  # at most half of the kernel, so that no window lies in the border

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        xp, padded = array_namespace(x), self._window.pad(x, -inf)
        padded_shape, (first, *others) = padded.shape, self._window.pixel_slices(x.shape)
        maximum = padded[first].copy()
        pixel_numbers = xp.zeros(maximum.shape, "int16")
        for number, pixel in enumerate(others, start=1):
            candidate = padded[pixel]
            is_larger = candidate > maximum
            pixel_numbers[is_larger] = number
            xp.maximum(maximum, candidate, out=maximum)

        def input_grad(dy: Array) -> Array:
            dx = xp.zeros(padded_shape, dy.dtype)
            for number, pixel in enumerate((first, *others)):
                dx[pixel] += dy * (pixel_numbers == number)
            return self._window.remove_padding(dx)

        return maximum, input_grad

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost((input_shape[0], *self._window.output_sides(input_shape)), {})

    @property
    def _window(self) -> SlidingWindow:
        return SlidingWindow(self.kernel, self.stride, self.padding)


@dataclass(frozen=True)
class GlobalAveragePool(ParameterFreeLayer):
    """Layer that takes the mean of each channel of an image: (C, H, W, B) → (B, C)."""

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        shape = x.shape

        def input_grad(dy: Array) -> Array:
            shares = dy.T / (shape[1] * shape[2])
            return array_namespace(dy).broadcast_to(shares[:, None, None, :], shape)

        return x.mean(axis=(1, 2)).T, input_grad

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost(input_shape[:1], {})
