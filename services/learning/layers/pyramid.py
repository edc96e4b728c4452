"""Feature pyramid: features of an image on several levels of resolution, and layers shared by all levels."""

from collections.abc import Generator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import prod
from operator import add
from typing import TypeAlias

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
from services.learning.layers.images import sum_blocks, upsample
from services.learning.layout import Shape
from services.schema.arrays import Array, array_namespace

# Yields gradients of arrays, and returns the gradients of the inputs of several layers.
GradientListGenerator: TypeAlias = Generator[ArrayGradient, None, list[Array]]

SCALE = 2  # a level has half the resolution of the level before it


@dataclass(frozen=True)
class FeaturePyramid(CompositeLayer):
    """Feature pyramid network: each level combines its own features with those of all coarser levels.

    Stage k computes the features cₖ from those of stage k - 1 and halves the resolution; the first stage may reduce it
    by another factor. Level k is pₖ = lateralₖ(cₖ) + upsample(pₖ₊₁), and its output smoothₖ(pₖ). Shapes: images (C, H,
    W, B) → (F, P, B), where P are the pixels of all levels, the finest level first. T.-Y. Lin et al., "Feature Pyramid
    Networks for Object Detection", CVPR 2017.
    """

    stages: tuple[Layer, ...]
    laterals: tuple[Layer, ...]  # one per stage, to a common number of features F
    smooths: tuple[Layer, ...]  # one per stage

    @property
    def parts(self) -> tuple[Layer, ...]:
        return *self.stages, *self.laterals, *self.smooths

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        features, stage_passes = [], []
        for stage in self.stages:
            x, stage_pass = stage.forward(arrays, x, context)
            features.append(x)
            stage_passes.append(stage_pass)
        levels, lateral_passes = _forward_each(self.laterals, arrays, features, context)
        for level in reversed(range(len(levels) - 1)):
            levels[level] = levels[level] + upsample(levels[level + 1], SCALE)
        outputs, smooth_passes = _forward_each(self.smooths, arrays, levels, context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            output_grads = split_levels(output_grad, [output.shape[1:3] for output in outputs])
            level_grads = yield from _backward_each(smooth_passes, output_grads)
            for level in range(len(level_grads) - 1):
                level_grads[level + 1] = level_grads[level + 1] + sum_blocks(level_grads[level], SCALE)
            feature_grads = yield from _backward_each(lateral_passes, level_grads)
            grad: Array | None = None
            for number in reversed(range(len(stage_passes))):
                grad = feature_grads[number] if grad is None else grad + feature_grads[number]
                grad = yield from stage_passes[number](grad, needs_input_grad=needs_input_grad or number > 0)
            return grad

        return join_levels(outputs), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        flops: dict[str, float] = {}
        places = 0
        for stage, lateral, smooth in zip(self.stages, self.laterals, self.smooths, strict=True):
            input_shape, stage_flops = stage.measure_cost(input_shape)
            lateral_shape, lateral_flops = lateral.measure_cost(input_shape)
            output_shape, smooth_flops = smooth.measure_cost(lateral_shape)
            flops |= stage_flops | lateral_flops | smooth_flops
            features, height, width = output_shape
            places += height * width
        return LayerCost((features, places), {name: flops[name] for name in self.parameter_shapes() if name in flops})


@dataclass(frozen=True)
class LevelSharedLayer(CompositeLayer):
    """One layer, applied to each level of a pyramid of square levels: (F, P, B) → (G, P, B).

    The layer keeps the resolution of its input. The gradients of its arrays are sums over the levels.
    """

    layer: Layer
    sides: tuple[int, ...]  # in pixels, by level

    @property
    def parts(self) -> tuple[Layer, ...]:
        return (self.layer,)

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        sides = [(side, side) for side in self.sides]
        outputs, passes = _forward_each((self.layer,) * len(sides), arrays, split_levels(x, sides), context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            generators = [
                level_pass(grad, needs_input_grad=needs_input_grad)
                for level_pass, grad in zip(passes, split_levels(output_grad, sides), strict=True)
            ]
            input_grads = yield from _add_gradients(generators)
            return join_levels(input_grads) if needs_input_grad else None

        return join_levels(outputs), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        features, places = input_shape
        costs = [self.layer.measure_cost((features, side, side)) for side in self.sides]
        flops = {name: sum(cost.flops_by_array[name] for cost in costs) for name in costs[0].flops_by_array}
        return LayerCost((costs[0].output_shape[0], places), flops)


def join_levels(levels: list[Array]) -> Array:
    """Return images of several sizes as one array: (F, H, W, B) for each level → (F, P, B)."""
    rows = [level.reshape(level.shape[0], prod(level.shape[1:3]), level.shape[3]) for level in levels]
    return array_namespace(levels[0]).concatenate(rows, axis=1)


def split_levels(joined: Array, sides: list[tuple[int, int]]) -> list[Array]:
    """Return the levels of a joined array as views, given their heights and widths; the inverse of `join_levels`."""
    ends = [0]
    for height, width in sides:
        ends.append(ends[-1] + height * width)
    parts = (joined[:, start:end] for start, end in pairwise(ends))
    return [part.reshape(len(joined), *shape, joined.shape[2]) for part, shape in zip(parts, sides, strict=True)]


def _forward_each(
    layers: tuple[Layer, ...], arrays: ParameterArrays, inputs: list[Array], context: PassContext
) -> tuple[list[Array], list[BackwardPass]]:
    """Return the outputs and the backward passes of layers, each with its own input."""
    results = [layer.forward(arrays, x, context) for layer, x in zip(layers, inputs, strict=True)]
    return [output for output, _ in results], [backward for _, backward in results]


def _backward_each(passes: list[BackwardPass], grads: list[Array]) -> GradientListGenerator:
    """Yield the gradients of the arrays of several layers, the last first; return the gradients of their inputs."""
    input_grads = []
    for backward, grad in reversed(list(zip(passes, grads, strict=True))):
        input_grads.append((yield from backward(grad, needs_input_grad=True)))
    return input_grads[::-1]


def _add_gradients(generators: list[GradientGenerator]) -> GradientListGenerator:
    """Yield the sums of the gradients that backward passes of one layer yield; return the gradients of their inputs."""
    while True:
        gradients: list[ArrayGradient] = []
        input_grads: list[Array] = []
        for generator in generators:
            try:
                gradients.append(next(generator))
            except StopIteration as end:  # all passes yield equally many gradients
                input_grads.append(end.value)
        if input_grads:
            return input_grads
        yield ArrayGradient(gradients[0].array_name, reduce(add, (each.gradient for each in gradients)))
