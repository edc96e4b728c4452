"""Layers for images that have no parameters: order of axes, padding and size."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from operator import add

from services.learning.layers.base import LayerCost, ParameterFreeLayer, PassContext
from services.learning.layout import Shape
from services.schema.arrays import Array, array_namespace


@dataclass(frozen=True)
class MoveSampleAxisLast(ParameterFreeLayer):
    """Layer that moves the axis of samples to the end: (B, C, H, W) → (C, H, W, B)."""

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - the same in training and evaluation
        return x.transpose(1, 2, 3, 0), lambda dy: dy.transpose(3, 0, 1, 2)


@dataclass(frozen=True)
class FitToSquare(ParameterFreeLayer):
    """Layer that enlarges square images to `side` pixels: first by an integer factor, then by a border of zeros.

    The shapes are (C, H, H, B) → (C, side, side, B), with H at most `side`. 8x8 images become 32x32 by a factor of 4,
    28x28 images by a border of two pixels.
    """

    side: int

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        factor = self.side // x.shape[1]
        images = upsample(x, factor)
        padding, extra = divmod(self.side - images.shape[1], 2)
        padded = array_namespace(x).pad(images, ((0, 0), *[(padding, padding + extra)] * 2, (0, 0)))
        inner = slice(padding, padding + images.shape[1])
        return padded, lambda dy: sum_blocks(dy[:, inner, inner], factor)

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost((input_shape[0], self.side, self.side), {})


@dataclass(frozen=True)
class Upsample(ParameterFreeLayer):
    """Layer that enlarges images by an integer factor: every pixel becomes factor x factor equal pixels.

    The shapes are (C, H, W, B) → (C, factor·H, factor·W, B).
    """

    factor: int = 2

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        return upsample(x, self.factor), lambda dy: sum_blocks(dy, self.factor)

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        channels, height, width = input_shape
        return LayerCost((channels, self.factor * height, self.factor * width), {})


@dataclass(frozen=True)
class Flatten(ParameterFreeLayer):
    """Layer that converts images to rows of numbers: (C, H, W, B) → (B, C·H·W)."""

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        shape = x.shape
        return x.reshape(prod(shape[:-1]), shape[-1]).T, lambda dy: dy.T.reshape(shape)

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost((prod(input_shape),), {})


@dataclass(frozen=True)
class FlattenSamples(ParameterFreeLayer):
    """Layer that converts samples of any shape to rows of numbers: (B, …) → (B, I)."""

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        shape = x.shape
        return x.reshape(len(x), prod(shape[1:])), lambda dy: dy.reshape(shape)

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost((prod(input_shape),), {})


def upsample(images: Array, factor: int) -> Array:
    """Return images enlarged by an integer factor (nearest neighbour).

    The images have the shape (C, H, W, B); every pixel becomes factor x factor pixels.
    """
    return images.repeat(factor, axis=1).repeat(factor, axis=2)


def sum_blocks(images: Array, factor: int) -> Array:
    """Return the sum of every block of factor x factor pixels: the adjoint of `upsample`.

    The images have the shape (C, H, W, B), with H and W divisible by `factor`.
    """
    first, *others = (images[:, row::factor, column::factor] for row, column in product(range(factor), repeat=2))
    return reduce(add, others, first)
