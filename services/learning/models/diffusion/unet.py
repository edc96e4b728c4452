"""U-Net that predicts the noise in an image, given the diffusion step and the class of the image.

O. Ronneberger et al., "U-Net", MICCAI 2015, with the blocks of J. Ho et al., "Denoising Diffusion Probabilistic
Models", NeurIPS 2020: group normalisation, SiLU, and an embedding of the step that shifts each block's features.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import TypeAlias

from services.learning.layers.activations import Silu
from services.learning.layers.base import (
    ArrayGradient,
    BackwardPass,
    CompositeLayer,
    GradientGenerator,
    Layer,
    LayerCost,
    ParameterArrays,
    PassContext,
)
from services.learning.layers.chain import Chain
from services.learning.layers.convolution import Conv2d
from services.learning.layers.dense import Dense
from services.learning.layers.images import Upsample
from services.learning.layers.initialisation import glorot_variance, he_variance
from services.learning.layers.normalisation import GroupNorm
from services.learning.layers.residual import IDENTITY
from services.learning.layout import Shape
from services.schema.arrays import Array, array_namespace

# Yields gradients of arrays, and returns the gradients of features and embedding.
PairGradientGenerator: TypeAlias = Generator[ArrayGradient, None, tuple[Array, Array]]

CHANNELS_PER_GROUP = 4  # of the group normalisation
MAX_PERIOD = 10_000  # of the sinusoids that encode a diffusion step
CONDITIONS = 2  # planes of an input that contain no image: the diffusion step, and the class


@dataclass(frozen=True)
class NoisePredictor(CompositeLayer):
    """Network that predicts the noise in images: (B, C + 2, H, W) → (B, C, H, W).

    An input consists of the noisy image, a plane with its diffusion step and a plane with its class. The input is data:
    its gradient is never computed.
    """

    channels: int  # C
    classes: int
    width: int  # features at the full resolution; twice as many at each coarser one

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self._embedding, self._entry, self._body, self._exit

    @cached_property
    def _embedding(self) -> Layer:
        inputs, size = self.width + self.classes, 4 * self.width
        first = Dense("embedding.dense1", inputs, size, he_variance)
        return Chain((first, Silu(), Dense("embedding.dense2", size, size, he_variance), Silu()))

    @cached_property
    def _entry(self) -> Layer:
        return _convolution("entry", self.channels, self.width)

    @cached_property
    def _body(self) -> Layer:
        width, embedding_size = self.width, 4 * self.width
        return UNetLevel(
            down=ConditionedBlock("down", width, width, embedding_size),
            downsample=_convolution("downsample", width, 2 * width, stride=2),
            inner=ConditionedBlock("middle", 2 * width, 2 * width, embedding_size),
            upsample=Chain((Upsample(), _convolution("upsample", 2 * width, width))),
            up=ConditionedBlock("up", 2 * width, width, embedding_size),
        )

    @cached_property
    def _exit(self) -> Layer:
        return Chain((*_norm_and_activation("exit.norm", self.width), _convolution("exit", self.width, self.channels)))

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        images, conditions = x[:, : self.channels].transpose(1, 2, 3, 0), x[:, self.channels :, 0, 0]
        features = encode_conditions(conditions, self.width, self.classes)
        embedding, embedding_pass = self._embedding.forward(arrays, features, context)
        features, entry_pass = self._entry.forward(arrays, images, context)
        features, body_pass = self._body.forward(arrays, (features, embedding), context)
        noise, exit_pass = self._exit.forward(arrays, features, context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:  # noqa: ARG001 - the input is data
            features_grad = yield from exit_pass(output_grad.transpose(1, 2, 3, 0), needs_input_grad=True)
            features_grad, embedding_grad = yield from _backward_pair(body_pass, features_grad)
            yield from entry_pass(features_grad, needs_input_grad=False)
            yield from embedding_pass(embedding_grad, needs_input_grad=False)
            return None

        return noise.transpose(3, 0, 1, 2), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        """Return output shape and operations for an image of the shape (C, H, W), without the conditions."""
        embedding = self._embedding.measure_cost((self.width + self.classes,))
        entry = self._entry.measure_cost(input_shape)
        body = self._body.measure_cost(entry.output_shape)
        last = self._exit.measure_cost(body.output_shape)
        flops = embedding.flops_by_array | entry.flops_by_array | body.flops_by_array | last.flops_by_array
        return LayerCost(last.output_shape, flops)


@dataclass(frozen=True)
class UNetLevel(CompositeLayer):
    """One resolution of a U-Net, with all coarser ones inside: (features, embedding) → features.

    The features are (C, H, W, B), the embedding is (B, E). `inner` works on half the resolution; `up` gets its result
    next to the output of `down`.
    """

    down: Layer
    downsample: Layer
    inner: Layer
    upsample: Layer
    up: Layer

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.down, self.downsample, self.inner, self.upsample, self.up

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        features, embedding = x
        skipped, down_pass = self.down.forward(arrays, (features, embedding), context)
        features, downsample_pass = self.downsample.forward(arrays, skipped, context)
        features, inner_pass = self.inner.forward(arrays, (features, embedding), context)
        features, upsample_pass = self.upsample.forward(arrays, features, context)
        joined = array_namespace(features).concatenate([features, skipped])
        y, up_pass = self.up.forward(arrays, (joined, embedding), context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:  # noqa: ARG001 - always needed
            grad: Array
            joined_grad, embedding_grad = yield from _backward_pair(up_pass, output_grad)
            grad = yield from upsample_pass(joined_grad[: len(features)], needs_input_grad=True)
            grad, inner_embedding_grad = yield from _backward_pair(inner_pass, grad)
            grad = yield from downsample_pass(grad, needs_input_grad=True)
            grad, down_embedding_grad = yield from _backward_pair(down_pass, grad + joined_grad[len(features) :])
            return grad, embedding_grad + inner_embedding_grad + down_embedding_grad

        return y, backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        costs = [self.down.measure_cost(input_shape)]
        for layer in (self.downsample, self.inner, self.upsample):
            costs.append(layer.measure_cost(costs[-1].output_shape))
        channels, height, width = costs[-1].output_shape
        costs.append(self.up.measure_cost((channels + costs[0].output_shape[0], height, width)))
        flops = {name: count for cost in costs for name, count in cost.flops_by_array.items()}
        return LayerCost(costs[-1].output_shape, flops)


@dataclass(frozen=True)
class ConditionedBlock(CompositeLayer):
    """Residual block whose features are shifted by an embedding: (features, embedding) → features.

    The features are (C, H, W, B) → (O, H, W, B), the embedding is (B, E).
    """

    name: str
    channels: int
    outputs: int
    embedding_size: int

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self._first, self._shift, self._second, self._shortcut

    @cached_property
    def _first(self) -> Layer:
        convolution = _convolution(f"{self.name}.conv1", self.channels, self.outputs)
        return Chain((*_norm_and_activation(f"{self.name}.norm1", self.channels), convolution))

    @cached_property
    def _shift(self) -> Layer:
        return Dense(f"{self.name}.shift", self.embedding_size, self.outputs)

    @cached_property
    def _second(self) -> Layer:
        convolution = _convolution(f"{self.name}.conv2", self.outputs, self.outputs)
        return Chain((*_norm_and_activation(f"{self.name}.norm2", self.outputs), convolution))

    @cached_property
    def _shortcut(self) -> Layer:
        is_identity = self.channels == self.outputs
        return IDENTITY if is_identity else Conv2d(f"{self.name}.shortcut", self.channels, self.outputs, 1)

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        features, embedding = x
        hidden, first_pass = self._first.forward(arrays, features, context)
        shift, shift_pass = self._shift.forward(arrays, embedding, context)
        hidden = hidden + shift.T[:, None, None]
        y, second_pass = self._second.forward(arrays, hidden, context)
        shortcut, shortcut_pass = self._shortcut.forward(arrays, features, context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:  # noqa: ARG001 - always needed
            shortcut_grad: Array = yield from shortcut_pass(output_grad, needs_input_grad=True)
            hidden_grad: Array = yield from second_pass(output_grad, needs_input_grad=True)
            embedding_grad = yield from shift_pass(hidden_grad.sum(axis=(1, 2)).T, needs_input_grad=True)
            first_grad: Array = yield from first_pass(hidden_grad, needs_input_grad=True)
            return first_grad + shortcut_grad, embedding_grad

        return y + shortcut, backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        first = self._first.measure_cost(input_shape)
        shift = self._shift.measure_cost((self.embedding_size,))
        second = self._second.measure_cost(first.output_shape)
        shortcut = self._shortcut.measure_cost(input_shape)
        flops = first.flops_by_array | shift.flops_by_array | second.flops_by_array | shortcut.flops_by_array
        return LayerCost(second.output_shape, flops)


def encode_conditions(conditions: Array, sinusoids: int, classes: int) -> Array:
    """Return the features of diffusion step and class: sinusoids of the step, and a 1 at the class.

    Shapes: (B, 2) → (B, sinusoids + classes). Sinusoids of several periods: A. Vaswani et al., "Attention is all you
    need", NIPS 2017, section 3.5.
    """
    xp, half = array_namespace(conditions), sinusoids // 2
    exponents = xp.arange(half, dtype=conditions.dtype) / max(half - 1, 1)
    angles = conditions[:, :1] * xp.exp(-log(MAX_PERIOD) * exponents)
    one_hot = (conditions[:, 1:] == xp.arange(classes)).astype(conditions.dtype)
    return xp.concatenate([xp.sin(angles), xp.cos(angles), one_hot], axis=1)


def _backward_pair(layer_pass: BackwardPass, output_grad: Array) -> PairGradientGenerator:
    """Yield the gradients of a layer's arrays, and return those of its features and its embedding."""
    grads: Array = yield from layer_pass(output_grad, needs_input_grad=True)
    features_grad, embedding_grad = grads
    return features_grad, embedding_grad


def _convolution(name: str, channels: int, outputs: int, stride: int = 1) -> Conv2d:
    return Conv2d(name, channels, outputs, 3, glorot_variance, stride=stride, padding=1)


def _norm_and_activation(name: str, channels: int) -> tuple[Layer, Layer]:
    return GroupNorm(name, channels, groups=channels // CHANNELS_PER_GROUP), Silu()
