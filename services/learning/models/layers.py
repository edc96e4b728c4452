"""The mathematics that networks are built of: each layer is a forward pass together with its backward pass.

B samples · C channels · H side of a picture · I inputs, O outputs · K side of a kernel · P = H - K + 1 its positions.
Rows of numbers are (B, I). Pictures are (C, H, H, B), samples last: then a convolution is one product for the whole
batch, and every slice in it reads memory in order (twice as fast as samples first).
dy, dx: gradients of the loss with respect to a layer's output and input, shaped like them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray, namespace

Variance: TypeAlias = Callable[[int, int], float]  # (fan in, fan out) -> variance of the first weights


def glorot(fan_in: int, fan_out: int) -> float:
    """Keeps variances through layers that are linear or tanh. X. Glorot, Y. Bengio, AISTATS 2010, eq. 12."""
    return 2 / (fan_in + fan_out)


def he(fan_in: int, fan_out: int) -> float:  # noqa: ARG001 - one signature for both rules
    """Keeps variances through rectifiers, which halve them. K. He et al., ICCV 2015, eq. 10."""
    return 2 / fan_in


class Backward(NamedTuple):
    """What a layer kept of its forward pass: two functions of dy, apart since the first layer's dx is never needed."""

    to_input: Callable[[Array], Array]  # dy -> dx
    to_arrays: Callable[[Array], tuple[Array, ...]]  # dy -> gradients of the layer's arrays, in their order


class Layer(ABC):
    """A differentiable function of a batch and of the layer's own arrays."""

    @abstractmethod
    def shapes(self) -> dict[str, Shape]:
        """Names and shapes of its arrays, in their order."""

    @abstractmethod
    def init(self, rng: np.random.Generator) -> tuple[HostArray, ...]:
        """First values of its arrays."""

    @abstractmethod
    def forward(self, arrays: tuple[Array, ...], x: Array) -> tuple[Array, Backward]:
        """The output, and the way back."""

    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations of the products of one sample's forward pass."""


@dataclass(frozen=True)
class Dense(Layer):
    """y = x·w + b, with x (B, I), w (I, O), b (O,), y (B, O)."""

    inputs: int
    outputs: int
    variance: Variance = glorot

    def shapes(self) -> dict[str, Shape]:
        return {"weight": (self.inputs, self.outputs), "bias": (self.outputs,)}

    def init(self, rng: np.random.Generator) -> tuple[HostArray, ...]:
        weight = rng.standard_normal((self.inputs, self.outputs))
        return weight * np.sqrt(self.variance(self.inputs, self.outputs)), np.zeros(self.outputs)

    def forward(self, arrays: tuple[Array, ...], x: Array) -> tuple[Array, Backward]:
        w, b = arrays
        return x @ w + b, Backward(lambda dy: dy @ w.T, lambda dy: (x.T @ dy, dy.sum(axis=0)))

    def flops(self) -> int:
        return 2 * self.inputs * self.outputs


@dataclass(frozen=True)
class Conv2d(Layer):
    """y[o] = bias[o] + Σ_c x[c] ⋆ w[o, c], stride 1, no padding: x (C, H, H, B), w (O, C, K, K), y (O, P, P, B).

    One product with the patches of the pictures: K. Chellapilla et al., "High performance convolutional neural networks
    for document processing", IWFHR 2006.
    """

    channels: int
    outputs: int
    kernel: int
    side: int  # H
    variance: Variance = glorot

    def shapes(self) -> dict[str, Shape]:
        return {"weight": (self.outputs, self.channels, self.kernel, self.kernel), "bias": (self.outputs,)}

    def init(self, rng: np.random.Generator) -> tuple[HostArray, ...]:
        area = self.kernel**2
        weight = rng.standard_normal(self.shapes()["weight"])
        return weight * np.sqrt(self.variance(self.channels * area, self.outputs * area)), np.zeros(self.outputs)

    def forward(self, arrays: tuple[Array, ...], x: Array) -> tuple[Array, Backward]:
        w, bias = arrays
        rows, columns = w.reshape(self.outputs, -1), patches(x, self.kernel)

        def to_input(dy: Array) -> Array:
            return from_patches(rows.T @ dy.reshape(self.outputs, -1), x.shape, self.kernel)

        def to_arrays(dy: Array) -> tuple[Array, ...]:
            dy = dy.reshape(self.outputs, -1)
            return (dy @ columns.T).reshape(w.shape), dy.sum(axis=1)

        y = rows @ columns + bias[:, None]
        return y.reshape(self.outputs, self._positions, self._positions, x.shape[-1]), Backward(to_input, to_arrays)

    def flops(self) -> int:
        return 2 * self.outputs * self.channels * self.kernel**2 * self._positions**2

    @property
    def _positions(self) -> int:
        return self.side - self.kernel + 1


@dataclass(frozen=True)
class Unweighted(Layer):
    """A layer without arrays."""

    def shapes(self) -> dict[str, Shape]:
        return {}

    def init(self, rng: np.random.Generator) -> tuple[HostArray, ...]:  # noqa: ARG002 - nothing to draw
        return ()

    def forward(self, arrays: tuple[Array, ...], x: Array) -> tuple[Array, Backward]:  # noqa: ARG002 - there are none
        y, to_input = self.apply(x)
        return y, Backward(to_input, lambda _: ())

    def flops(self) -> int:
        return 0

    @abstractmethod
    def apply(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """y, and dy -> dx."""


@dataclass(frozen=True)
class Relu(Unweighted):
    """y = max(x, 0); the slope at 0 is 0."""

    variance: Variance = he

    def apply(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        return x.clip(0), lambda dy: dy * (x > 0)


@dataclass(frozen=True)
class Tanh(Unweighted):
    """y = tanh x, whose slope is 1 - y²."""

    variance: Variance = glorot

    def apply(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        y = namespace(x).tanh(x)
        return y, lambda dy: dy * (1 - y * y)


@dataclass(frozen=True)
class AveragePool(Unweighted):
    """The mean of every 2x2 block: (C, H, H, B) → (C, H/2, H/2, B), H even."""

    def apply(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        corners = x[:, ::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, ::2] + x[:, 1::2, 1::2]
        return corners / 4, lambda dy: enlarged(dy / 4, 2)


@dataclass(frozen=True)
class Flatten(Unweighted):
    """Pictures (C, H, H, B) → rows (B, C·H·H)."""

    def apply(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        return x.reshape(-1, x.shape[-1]).T, lambda dy: dy.T.reshape(x.shape)


ACTIVATIONS: dict[str, Relu | Tanh] = {"relu": Relu(), "tanh": Tanh()}


def patches(x: Array, kernel: int) -> Array:
    """Every KxK patch of pictures (C, H, H, B) as a column: (C·K·K, P·P·B)."""
    windows = namespace(x).lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))
    channels, *positions, _, _ = windows.shape
    return windows.transpose(0, 4, 5, 1, 2, 3).reshape(channels * kernel**2, prod(positions))


def from_patches(columns: Array, shape: Shape, kernel: int) -> Array:
    """The adjoint of `patches`: each pixel of pictures of `shape` (C, H, H, B) sums the patches it lies in."""
    channels, side, _, batch = shape
    positions = side - kernel + 1
    columns = columns.reshape(channels, kernel, kernel, positions, positions, batch)
    x = namespace(columns).zeros(shape, columns.dtype)
    for i, j in product(range(kernel), repeat=2):
        x[:, i : i + positions, j : j + positions] += columns[:, i, j]
    return x


def enlarged(x: Array, factor: int) -> Array:
    """Every pixel of pictures (C, H, H, B) as a block of factor x factor pixels (nearest neighbour)."""
    return x.repeat(factor, axis=1).repeat(factor, axis=2)


def flat(x: Array) -> Array:
    """Samples (B, …) as rows (B, I)."""
    return x.reshape(len(x), -1)
