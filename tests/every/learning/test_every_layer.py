"""Tests of every layer: gradients are right, arrays come in reverse order, arguments stay as they are.

To add a layer, add an example to `EXAMPLES`: the layer, and the shape of one sample as the layer takes it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from layer_classes import find_layer_classes

from services.learning.layers.activations import Gelu, Relu, Silu, Tanh
from services.learning.layers.base import CompositeLayer, Layer, PassContext
from services.learning.layers.chain import Chain
from services.learning.layers.convolution import Conv2d
from services.learning.layers.dense import Dense
from services.learning.layers.dropout import Dropout
from services.learning.layers.images import FitToSquare, Flatten, FlattenSamples, MoveSampleAxisLast, Upsample
from services.learning.layers.normalisation import BatchNorm2d, GroupNorm
from services.learning.layers.pooling import AveragePool, GlobalAveragePool, MaxPool2d
from services.learning.layers.pyramid import FeaturePyramid, LevelSharedLayer
from services.learning.layers.residual import Residual
from services.learning.layers.sequences.adapters import LoraDense
from services.learning.layers.sequences.attention import MultiHeadAttention
from services.learning.layers.sequences.embedding import Embedding, LearnedPositions
from services.learning.layers.sequences.gated import SwiGlu
from services.learning.layers.sequences.normalisation import LayerNorm, RmsNorm
from services.learning.layout import Shape
from services.runtime.device import ComputeDevice
from services.schema.arrays import Array, HostArray

SAMPLES = 3
FINITE_STEP = 1e-6


@dataclass(frozen=True)
class LayerExample:
    """A layer, and the inputs that it takes.

    `input_shape` is the shape of one sample. A layer for images takes samples last, another one takes them first.
    """

    layer: Layer
    input_shape: Shape
    takes_images: bool = False
    gives_images: bool | None = None  # where that differs from `takes_images`
    is_linear: bool = False  # in its input, without a constant
    vocabulary: int | None = None  # number of tokens, for a layer that takes tokens, which have no gradient
    frozen_shapes: Mapping[str, Shape] = field(
        default_factory=dict
    )  # of arrays that the layer reads and does not train

    def batch_shape(self, samples: int) -> Shape:
        """Return the shape of a batch of inputs."""
        return add_samples_axis(self.input_shape, samples, last=self.takes_images)

    def output_batch_shape(self, samples: int) -> Shape:
        """Return the shape of a batch of outputs, according to the layer's cost."""
        output_shape = self.layer.measure_cost(self.input_shape).output_shape
        last = self.takes_images if self.gives_images is None else self.gives_images
        return add_samples_axis(output_shape, samples, last=last)


def add_samples_axis(shape: Shape, samples: int, *, last: bool) -> Shape:
    """Return the shape of a batch of samples, given that of one sample."""
    return (*shape, samples) if last else (samples, *shape)


def images(layer: Layer, input_shape: Shape, *, gives_images: bool = True, is_linear: bool = False) -> LayerExample:
    """Return an example of a layer that takes images."""
    return LayerExample(layer, input_shape, takes_images=True, gives_images=gives_images, is_linear=is_linear)


CONV_NORM_OF_3 = Chain((Conv2d("stage2", 3, 4, 3, stride=2, padding=1, has_bias=False), BatchNorm2d("norm", 4), Relu()))


def attention(heads: int, key_value_heads: int, **options: bool) -> MultiHeadAttention:
    """Return attention with 4 features per position and head, on inputs with 5 features."""
    query, key, value = (
        Dense(name, 5, 4 * count)
        for name, count in (("query", heads), ("key", key_value_heads), ("value", key_value_heads))
    )
    return MultiHeadAttention(query, key, value, Dense("output", 4 * heads, 3), heads, key_value_heads, **options)


FROZEN_DENSE = {"dense.weight": (5, 4), "dense.bias": (4,)}
CONV_NORM = Chain((Conv2d("conv", 2, 4, 3, stride=2, padding=1, has_bias=False), BatchNorm2d("norm", 4), Relu()))
PYRAMID = FeaturePyramid(
    stages=(Conv2d("stage1", 2, 3, 3, padding=1), CONV_NORM_OF_3, Conv2d("stage3", 4, 5, 1, stride=2)),
    laterals=tuple(Conv2d(f"lateral{level}", channels, 2, 1) for level, channels in enumerate((3, 4, 5), 1)),
    smooths=(Chain((Conv2d("smooth1", 2, 2, 3, padding=1), Tanh())), Tanh(), Conv2d("smooth3", 2, 2, 1)),
)

EXAMPLES: dict[str, LayerExample] = {
    "relu": LayerExample(Relu(), (5,)),
    "tanh": LayerExample(Tanh(), (5,)),
    "dense": LayerExample(Dense("dense", 5, 4), (5,)),
    "dense without bias": LayerExample(Dense("dense", 5, 4, has_bias=False), (5,), is_linear=True),
    "dense on sequences": LayerExample(Dense("dense", 5, 4), (6, 5)),
    "dense, frozen": LayerExample(Dense("dense", 5, 4, is_frozen=True), (5,), frozen_shapes=FROZEN_DENSE),
    "gelu": LayerExample(Gelu(), (3, 5)),
    "silu": LayerExample(Silu(), (3, 5)),
    "dropout": LayerExample(Dropout(0.4), (4, 5), is_linear=True),
    "dropout at rate 0": LayerExample(Dropout(0.0), (4, 5), is_linear=True),
    "flatten samples": LayerExample(FlattenSamples(), (2, 3, 2), is_linear=True),
    "move sample axis last": LayerExample(MoveSampleAxisLast(), (2, 4, 3), gives_images=True, is_linear=True),
    "flatten": images(Flatten(), (2, 4, 3), gives_images=False, is_linear=True),
    "fit to square": images(FitToSquare(9), (2, 4, 4), is_linear=True),
    "upsample": images(Upsample(3), (2, 4, 3), is_linear=True),
    "convolution": images(Conv2d("conv", 2, 3, 3), (2, 5, 4)),
    "convolution, padded": images(Conv2d("conv", 2, 3, 3, padding=1, has_bias=False), (2, 4, 6), is_linear=True),
    "convolution, stride 2": images(Conv2d("conv", 2, 3, 3, stride=2, padding=1), (2, 7, 6)),
    "convolution, stride 3": images(Conv2d("conv", 1, 2, 2, stride=3, has_bias=False), (1, 8, 7), is_linear=True),
    "convolution, large padding": images(Conv2d("conv", 2, 2, 3, stride=2, padding=3), (2, 3, 4)),
    "convolution, even kernel": images(Conv2d("conv", 2, 3, 4, stride=2, padding=1), (2, 6, 8)),
    "convolution, 1x1": images(Conv2d("conv", 3, 2, 1, has_bias=False), (3, 4, 3), is_linear=True),
    "convolution, 1x1, stride 2": images(Conv2d("conv", 3, 2, 1, stride=2), (3, 5, 4)),
    "convolution, groups": images(Conv2d("conv", 4, 6, 3, padding=1, groups=2), (4, 4, 3)),
    "convolution, depthwise": images(Conv2d("conv", 3, 3, 3, stride=2, padding=1, groups=3), (3, 5, 5)),
    "average pooling": images(AveragePool(), (2, 4, 6), is_linear=True),
    "average pooling with a rest": images(AveragePool(3), (2, 7, 5), is_linear=True),
    "maximum pooling": images(MaxPool2d(2, stride=2), (2, 4, 6)),
    "maximum pooling, overlapping": images(MaxPool2d(3, stride=2, padding=1), (2, 7, 6)),
    "global average pooling": images(GlobalAveragePool(), (2, 3, 4), gives_images=False, is_linear=True),
    "batch normalisation": images(BatchNorm2d("norm", 3), (3, 4, 2)),
    "group normalisation": images(GroupNorm("norm", 6, groups=3), (6, 4, 2)),
    "layer normalisation of images": images(GroupNorm("norm", 4), (4, 2, 2)),
    "empty chain": LayerExample(Chain(()), (5,), is_linear=True),
    "chain": images(Chain((CONV_NORM, Flatten(), Dense("dense", 16, 2))), (2, 3, 4), gives_images=False),
    "chain that begins without parameters": images(Chain((Relu(), CONV_NORM)), (2, 3, 4)),
    "feature pyramid": images(PYRAMID, (2, 8, 4)),
    "level-shared layer": LayerExample(
        LevelSharedLayer(Chain((Conv2d("conv", 2, 3, 3, padding=1), Relu())), sides=(4, 2)), (2, 20), takes_images=True
    ),
    "residual": images(Residual(Chain((Conv2d("conv", 2, 2, 3, padding=1), Tanh()))), (2, 3, 4)),
    "embedding": LayerExample(Embedding("tokens", 6, 4), (5,), vocabulary=6),
    "embedding, frozen": LayerExample(
        Embedding("tokens", 6, 4, is_frozen=True), (5,), vocabulary=6, frozen_shapes={"tokens.weight": (6, 4)}
    ),
    "embedding in a chain": LayerExample(Chain((Embedding("tokens", 6, 4), Dense("dense", 4, 2))), (5,), vocabulary=6),
    "learned positions": LayerExample(LearnedPositions("positions", 7, 4), (5, 4)),
    "layer normalisation": LayerExample(LayerNorm("norm", 4), (3, 4)),
    "root mean square normalisation": LayerExample(RmsNorm("norm", 4), (3, 4)),
    "root mean square normalisation, frozen": LayerExample(
        RmsNorm("norm", 4, is_frozen=True), (3, 4), frozen_shapes={"norm.weight": (4,)}
    ),
    "attention": LayerExample(attention(2, 2), (6, 5)),
    "attention to earlier positions": LayerExample(attention(2, 2, is_causal=True), (6, 5)),
    "attention, grouped queries": LayerExample(attention(4, 2, is_causal=True), (6, 5)),
    "attention, rotary positions": LayerExample(attention(2, 1, has_rotary_positions=True), (6, 5)),
    "gated layer": LayerExample(SwiGlu(Dense("gate", 5, 6), Dense("up", 5, 6), Dense("down", 6, 5)), (3, 5)),
    "adapter": LayerExample(
        LoraDense(Dense("dense", 5, 4, is_frozen=True), rank=2, alpha=3), (3, 5), frozen_shapes=FROZEN_DENSE
    ),
    "residual with projection": images(Residual(CONV_NORM, Conv2d("shortcut", 2, 4, 1, stride=2)), (2, 5, 4)),
}


def all_layers(layer: Layer) -> Iterator[Layer]:
    """Yield a layer and all layers that it consists of."""
    yield layer
    if isinstance(layer, CompositeLayer):
        for part in layer.parts:
            yield from all_layers(part)


def is_random(example: LayerExample) -> bool:
    """Return whether the layer of an example draws random numbers."""
    return any(isinstance(layer, Dropout) for layer in all_layers(example.layer))


def each_example(condition: Callable[[LayerExample], bool]) -> pytest.MarkDecorator:
    """Return the mark of a test that runs with each example that satisfies a condition."""
    selected = {name: example for name, example in EXAMPLES.items() if condition(example)}
    return pytest.mark.parametrize("example", selected.values(), ids=selected)


every_layer = each_example(lambda _: True)
every_layer_with_input_gradient = each_example(lambda example: example.vocabulary is None)
every_linear_layer = each_example(lambda example: example.is_linear)
every_layer_without_random_numbers = each_example(lambda example: not is_random(example))


@dataclass(frozen=True)
class LayerPass:
    """Random arguments of a layer: its arrays, its input, and the gradient of its output."""

    layer: Layer
    arrays: dict[str, HostArray]
    x: HostArray
    output_grad: HostArray

    def run_forward(self) -> Array:
        """Return the output of the layer."""
        return self.layer.forward(self.arrays, self.x, PassContext())[0]

    def run_backward(self, *, needs_input_grad: bool) -> tuple[list[tuple[str, Array]], Array | None]:
        """Return the gradients of the arrays in the order in which the layer yields them, and that of the input."""
        _, backward = self.layer.forward(self.arrays, self.x, PassContext())
        generator, gradients = backward(self.output_grad, needs_input_grad=needs_input_grad), []
        while True:
            try:
                gradients.append(tuple(next(generator)))
            except StopIteration as end:
                return gradients, end.value

    def weighted_output_sum(self) -> float:
        """Return a loss whose gradient with respect to the output is `output_grad`."""
        return float((self.run_forward() * self.output_grad).sum())


def random_pass(example: LayerExample, samples: int = SAMPLES, dtype: str = "float64") -> LayerPass:
    """Return arguments of the layer of an example, for a batch of `samples`."""
    rng = np.random.default_rng(11)
    shapes = example.layer.parameter_shapes() | dict(example.frozen_shapes)
    arrays = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    x, output_grad = (
        rng.standard_normal(shape).astype(dtype)
        for shape in (example.batch_shape(samples), example.output_batch_shape(samples))
    )
    if example.vocabulary is not None:
        x = rng.integers(example.vocabulary, size=x.shape)
    return LayerPass(example.layer, arrays, x, output_grad)


def central_difference(layer_pass: LayerPass, array: HostArray, entry: tuple[int, ...]) -> float:
    """Return the slope of the loss along one entry of an array of the pass; the array is the same afterwards."""
    losses, value = [], array[entry]
    for step in (FINITE_STEP, -FINITE_STEP):
        array[entry] = value + step
        losses.append(layer_pass.weighted_output_sum())
    array[entry] = value
    return (losses[0] - losses[1]) / (2 * FINITE_STEP)


def assert_is_gradient(layer_pass: LayerPass, array: HostArray, gradient: Array | None) -> None:
    """Assert that every entry of the gradient of an array agrees with finite differences."""
    assert gradient is not None
    assert gradient.shape == array.shape
    entries = list(product(*map(range, array.shape)))
    slopes = [central_difference(layer_pass, array, entry) for entry in entries]
    np.testing.assert_allclose([gradient[entry] for entry in entries], slopes, rtol=1e-6, atol=1e-7)


def test_examples_table_contains_every_layer() -> None:
    """A layer that is not in the table is not tested."""
    assert {type(example.layer) for example in EXAMPLES.values()} >= find_layer_classes()


@every_layer
def test_gradient_of_every_array_agrees_with_finite_differences(example: LayerExample) -> None:
    """The definition of a gradient, entry by entry."""
    layer_pass = random_pass(example)
    gradients, _ = layer_pass.run_backward(needs_input_grad=False)

    for name, gradient in gradients:
        assert_is_gradient(layer_pass, layer_pass.arrays[name], gradient)


@every_layer_with_input_gradient
def test_gradient_of_the_input_agrees_with_finite_differences(example: LayerExample) -> None:
    """The layers before this one get their gradients from it."""
    layer_pass = random_pass(example)
    _, input_grad = layer_pass.run_backward(needs_input_grad=True)

    assert_is_gradient(layer_pass, layer_pass.x, input_grad)


@every_layer
def test_gradients_come_in_reverse_order_of_the_arrays(example: LayerExample) -> None:
    """A bucket of gradients that can be sent is a contiguous range of the parameter vector."""
    names = list(example.layer.parameter_shapes())

    for needs_input_grad in (False, True):
        gradients, _ = random_pass(example).run_backward(needs_input_grad=needs_input_grad)

        assert [name for name, _ in gradients] == names[::-1]


@every_layer
def test_gradients_do_not_depend_on_whether_that_of_the_input_is_needed(example: LayerExample) -> None:
    """The first layer of a network computes no gradient of its input, which saves time and changes nothing else."""
    without, no_input_grad = random_pass(example).run_backward(needs_input_grad=False)
    with_input, _ = random_pass(example).run_backward(needs_input_grad=True)

    assert no_input_grad is None
    assert [gradient.tolist() for _, gradient in without] == [gradient.tolist() for _, gradient in with_input]


@every_layer
def test_arguments_stay_as_they_are(example: LayerExample) -> None:
    """Several layers may read one input or one gradient: the paths of a residual block do."""
    layer_pass = random_pass(example)
    arguments = [*layer_pass.arrays.values(), layer_pass.x, layer_pass.output_grad]
    before = [array.tobytes() for array in arguments]

    layer_pass.run_forward()
    layer_pass.run_backward(needs_input_grad=True)

    assert [array.tobytes() for array in arguments] == before


@every_layer
def test_equal_arguments_give_equal_bits(example: LayerExample) -> None:
    """A step that is computed again, on this or another replica, must give the same gradient."""
    first, second = (random_pass(example).run_backward(needs_input_grad=True) for _ in range(2))

    assert [(name, gradient.tobytes()) for name, gradient in first[0]] == [
        (name, gradient.tobytes()) for name, gradient in second[0]
    ]
    assert np.array_equal(first[1], second[1])


@every_layer
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_have_the_type_of_the_arguments(example: LayerExample, dtype: str) -> None:
    """A single fp64 intermediate result would double memory and time of all layers after it."""
    layer_pass = random_pass(example, dtype=dtype)
    gradients, input_grad = layer_pass.run_backward(needs_input_grad=True)

    results = [layer_pass.run_forward(), input_grad, *(gradient for _, gradient in gradients)]
    assert {array.dtype.name for array in results if array is not None} == {dtype}


@every_layer
def test_no_samples_give_no_outputs_and_zero_gradients(example: LayerExample) -> None:
    """A share of a batch may be empty."""
    layer_pass = random_pass(example, samples=0)
    gradients, input_grad = layer_pass.run_backward(needs_input_grad=True)

    assert layer_pass.run_forward().shape == layer_pass.output_grad.shape
    if example.vocabulary is None:
        assert input_grad is not None
        assert input_grad.shape == layer_pass.x.shape
    assert {name: gradient.shape for name, gradient in gradients} == example.layer.parameter_shapes()
    assert not any(gradient.any() for _, gradient in gradients)


@every_layer
def test_the_shape_of_the_output_is_that_of_the_cost(example: LayerExample) -> None:
    """Networks take the sizes of their layers from it."""
    assert random_pass(example).run_forward().shape == example.output_batch_shape(SAMPLES)


@every_layer
def test_operations_are_known_for_arrays_of_the_layer(example: LayerExample) -> None:
    """The operations of a bucket of gradients are those of its arrays."""
    flops = example.layer.measure_cost(example.input_shape).flops_by_array

    assert set(flops) <= set(example.layer.parameter_shapes()) | set(example.frozen_shapes)
    assert all(count > 0 for count in flops.values())


@every_linear_layer
def test_the_backward_pass_of_a_linear_layer_is_its_adjoint(example: LayerExample) -> None:
    """⟨f(x), g⟩ = ⟨x, f*(g)⟩ for all x and g."""
    layer_pass = random_pass(example)
    _, input_grad = layer_pass.run_backward(needs_input_grad=True)

    assert layer_pass.weighted_output_sum() == pytest.approx(float((layer_pass.x * input_grad).sum()), rel=1e-12)


@every_layer_without_random_numbers
def test_results_are_the_same_on_all_devices(example: LayerExample, device: ComputeDevice) -> None:
    """A layer is written once for all devices. NumPy and CuPy draw different random numbers."""
    here = random_pass(example)
    arrays = {name: device.to_device(array) for name, array in here.arrays.items()}
    there = LayerPass(here.layer, arrays, device.to_device(here.x), device.to_device(here.output_grad))

    (expected, expected_input_grad), (actual, input_grad) = (
        layer_pass.run_backward(needs_input_grad=True) for layer_pass in (here, there)
    )

    np.testing.assert_allclose(device.to_host(there.run_forward()), here.run_forward(), rtol=1e-9, atol=1e-12)
    if expected_input_grad is not None:
        np.testing.assert_allclose(device.to_host(input_grad), expected_input_grad, rtol=1e-9, atol=1e-12)
    for (_, gradient), (_, expected_gradient) in zip(actual, expected, strict=True):
        np.testing.assert_allclose(device.to_host(gradient), expected_gradient, rtol=1e-9, atol=1e-12)


@every_layer_without_random_numbers
def test_evaluation_with_the_statistics_of_a_batch_gives_the_outputs_of_training(example: LayerExample) -> None:
    """Layers with statistics of the batch must use the given ones. Dropout is meant to differ in evaluation."""
    layer_pass, training = random_pass(example), PassContext()
    in_training, _ = example.layer.forward(layer_pass.arrays, layer_pass.x, training)

    evaluation = PassContext(is_training=False, fixed_statistics=training.recorded_statistics)
    in_evaluation, _ = example.layer.forward(layer_pass.arrays, layer_pass.x, evaluation)

    np.testing.assert_allclose(in_evaluation, in_training, rtol=1e-12)
    assert bool(training.recorded_statistics) == example.layer.needs_calibration
