"""Every layer gives the outputs and gradients of the same layer in PyTorch, in fp32."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from layer_classes import find_layer_classes  # noqa: E402 - after the check for PyTorch
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from benchmarks.compute.torch_models import retinanet_mini as torch_pyramid  # noqa: E402
from benchmarks.compute.torch_training import flatten_gradients, load_parameters  # noqa: E402
from benchmarks.compute.torch_transformer import (  # noqa: E402
    AddedPositions,
    Attention,
    GatedFeedForward,
    LoraLinear,
)
from services.learning.layers.activations import Gelu, Relu, Silu, Tanh  # noqa: E402
from services.learning.layers.base import Layer, PassContext  # noqa: E402
from services.learning.layers.chain import Chain  # noqa: E402
from services.learning.layers.convolution import Conv2d  # noqa: E402
from services.learning.layers.dense import Dense  # noqa: E402
from services.learning.layers.dropout import Dropout  # noqa: E402
from services.learning.layers.images import FitToSquare, Flatten, FlattenSamples, MoveSampleAxisLast, Upsample  # noqa: E402
from services.learning.layers.normalisation import BatchNorm2d, GroupNorm  # noqa: E402
from services.learning.layers.pooling import AveragePool, GlobalAveragePool, MaxPool2d  # noqa: E402
from services.learning.layers.pyramid import FeaturePyramid, LevelSharedLayer  # noqa: E402
from services.learning.layers.residual import Residual  # noqa: E402
from services.learning.layers.sequences.adapters import LoraDense  # noqa: E402
from services.learning.layers.sequences.attention import MultiHeadAttention  # noqa: E402
from services.learning.layers.sequences.embedding import Embedding, LearnedPositions  # noqa: E402
from services.learning.layers.sequences.gated import SwiGlu  # noqa: E402
from services.learning.layers.sequences.normalisation import LayerNorm, RmsNorm  # noqa: E402
from services.learning.layout import ParameterLayout, Shape  # noqa: E402
from services.schema.arrays import HostArray  # noqa: E402

pytestmark = pytest.mark.torch

SAMPLES = 5
TOLERANCE = 1e-5  # of the largest entry


@dataclass(frozen=True)
class Counterpart:
    """A layer, the same layer in PyTorch, and the shape of one sample. Both sides get the samples first."""

    layer: Layer
    build_module: Callable[[], Any]
    input_shape: Shape
    takes_images: bool = False  # so the layer takes samples last
    gives_images: bool | None = None  # where that differs from `takes_images`
    vocabulary: int | None = None  # number of tokens, for a layer that takes tokens
    frozen_arrays: Mapping[str, HostArray] = field(default_factory=dict)  # that the layer reads and does not train

    def as_taken(self, batch: HostArray) -> HostArray:
        """Return a batch with the axis of samples where the layer takes it."""
        return np.ascontiguousarray(np.moveaxis(batch, 0, -1)) if self.takes_images else batch

    def as_given(self, outputs: HostArray) -> HostArray:
        """Return the outputs of the layer with the axis of samples first."""
        gives_images = self.takes_images if self.gives_images is None else self.gives_images
        return np.moveaxis(outputs, -1, 0) if gives_images else outputs


def images(layer: Layer, build_module: Callable[[], Any], input_shape: Shape, **fields: bool) -> Counterpart:
    """Return a counterpart that takes images."""
    return Counterpart(layer, build_module, input_shape, takes_images=True, **fields)


class ResidualModule(nn.Module):
    """Residual block in PyTorch."""

    def __init__(self, main: Any, shortcut: Any) -> None:
        super().__init__()
        self.main, self.shortcut = main, shortcut

    def forward(self, x: Any) -> Any:
        """Return the sum of both paths."""
        return self.main(x) + self.shortcut(x)


def attention(heads: int, key_value_heads: int, **options: bool) -> Counterpart:
    """Return attention with 4 features per position and head, on 6 positions with 5 features."""
    sizes = {
        "query": (5, 4 * heads),
        "key": (5, 4 * key_value_heads),
        "value": (5, 4 * key_value_heads),
        "output": (4 * heads, 3),
    }
    projections = (Dense(name, *size) for name, size in sizes.items())
    return Counterpart(
        MultiHeadAttention(*projections, heads, key_value_heads, **options),
        lambda: Attention(*(nn.Linear(*size) for size in sizes.values()), heads, key_value_heads, **options),
        (6, 5),
    )


FROZEN_WEIGHT = np.random.default_rng(6).standard_normal((7, 4)).astype("float32")

COUNTERPARTS: dict[str, Counterpart] = {
    "relu": Counterpart(Relu(), nn.ReLU, (7,)),
    "tanh": Counterpart(Tanh(), nn.Tanh, (7,)),
    "dense": Counterpart(Dense("dense", 7, 4), lambda: nn.Linear(7, 4), (7,)),
    "dense on sequences": Counterpart(
        Dense("dense", 7, 4, has_bias=False), lambda: nn.Linear(7, 4, bias=False), (3, 7)
    ),
    "gelu": Counterpart(Gelu(), lambda: nn.GELU(approximate="tanh"), (7,)),
    "silu": Counterpart(Silu(), nn.SiLU, (7,)),
    "embedding": Counterpart(Embedding("tokens", 9, 4), lambda: nn.Embedding(9, 4), (6,), vocabulary=9),
    "learned positions": Counterpart(LearnedPositions("positions", 8, 4), lambda: AddedPositions(8, 4), (6, 4)),
    "layer normalisation": Counterpart(LayerNorm("norm", 16), lambda: nn.LayerNorm(16), (6, 16)),
    "root mean square normalisation": Counterpart(RmsNorm("norm", 16), lambda: nn.RMSNorm(16, eps=1e-5), (6, 16)),
    "attention": attention(2, 2),
    "attention to earlier positions": attention(2, 2, is_causal=True),
    "attention, grouped queries": attention(4, 2),
    "attention, grouped queries, to earlier positions": attention(6, 2, is_causal=True),
    "attention, rotary positions": attention(2, 1, is_causal=True, has_rotary_positions=True),
    "gated layer": Counterpart(
        SwiGlu(Dense("gate", 5, 6), Dense("up", 5, 6), Dense("down", 6, 5)),
        lambda: GatedFeedForward(nn.Linear(5, 6), nn.Linear(5, 6), nn.Linear(6, 5)),
        (6, 5),
    ),
    "adapter": Counterpart(
        LoraDense(Dense("dense", 7, 4, has_bias=False, is_frozen=True), rank=2, alpha=3),
        lambda: LoraLinear(torch.tensor(FROZEN_WEIGHT), rank=2, alpha=3),
        (6, 7),
        frozen_arrays={"dense.weight": FROZEN_WEIGHT},
    ),
    "dropout at rate 0": Counterpart(Dropout(0.0), lambda: nn.Dropout(0.0), (7,)),
    "flatten samples": Counterpart(FlattenSamples(), nn.Flatten, (2, 3, 4)),
    "move sample axis last": Counterpart(MoveSampleAxisLast(), nn.Identity, (2, 3, 4), gives_images=True),
    "flatten": images(Flatten(), nn.Flatten, (2, 3, 4), gives_images=False),
    "fit to square": images(
        FitToSquare(9), lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.ZeroPad2d((0, 1, 0, 1))), (2, 4, 4)
    ),
    "upsample": images(Upsample(3), lambda: nn.Upsample(scale_factor=3, mode="nearest"), (2, 4, 3)),
    "convolution": images(Conv2d("conv", 3, 8, 5), lambda: nn.Conv2d(3, 8, 5), (3, 12, 9)),
    "convolution, 1x1": images(Conv2d("conv", 8, 4, 1), lambda: nn.Conv2d(8, 4, 1), (8, 5, 6)),
    "convolution, padded": images(
        Conv2d("conv", 8, 16, 3, padding=1, has_bias=False),
        lambda: nn.Conv2d(8, 16, 3, padding=1, bias=False),
        (8, 8, 6),
    ),
    "convolution, stride 2": images(
        Conv2d("conv", 4, 8, 3, stride=2, padding=1), lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1), (4, 9, 8)
    ),
    "convolution, stride 3": images(
        Conv2d("conv", 4, 8, 5, stride=3, padding=2), lambda: nn.Conv2d(4, 8, 5, stride=3, padding=2), (4, 11, 12)
    ),
    "convolution, 1x1, stride 2": images(
        Conv2d("conv", 4, 8, 1, stride=2), lambda: nn.Conv2d(4, 8, 1, stride=2), (4, 9, 8)
    ),
    "convolution, groups": images(
        Conv2d("conv", 6, 4, 3, padding=1, groups=2), lambda: nn.Conv2d(6, 4, 3, padding=1, groups=2), (6, 5, 7)
    ),
    "convolution, depthwise": images(
        Conv2d("conv", 6, 6, 3, stride=2, padding=1, groups=6),
        lambda: nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6),
        (6, 8, 7),
    ),
    "average pooling": images(AveragePool(3), lambda: nn.AvgPool2d(3), (2, 7, 9)),
    "maximum pooling": images(MaxPool2d(2, stride=2), lambda: nn.MaxPool2d(2), (2, 6, 8)),
    "maximum pooling, overlapping": images(
        MaxPool2d(3, stride=2, padding=1), lambda: nn.MaxPool2d(3, stride=2, padding=1), (2, 8, 9)
    ),
    "global average pooling": images(
        GlobalAveragePool(),
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (4, 5, 6),
        gives_images=False,
    ),
    "batch normalisation": images(BatchNorm2d("norm", 4), lambda: nn.BatchNorm2d(4), (4, 5, 6)),
    "group normalisation": images(GroupNorm("norm", 6, groups=3), lambda: nn.GroupNorm(3, 6), (6, 4, 5)),
    "chain": images(
        Chain((Conv2d("conv", 3, 4, 3), Relu(), BatchNorm2d("norm", 4))),
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)),
        (3, 6, 7),
    ),
    "feature pyramid": images(
        FeaturePyramid(
            stages=tuple(Conv2d(f"stage{n}", n, n + 1, 3, stride=2, padding=1) for n in (2, 3, 4)),
            laterals=tuple(Conv2d(f"lateral{n}", n + 1, 6, 1) for n in (2, 3, 4)),
            smooths=tuple(Conv2d(f"smooth{n}", 6, 6, 3, padding=1) for n in (2, 3, 4)),
        ),
        lambda: torch_pyramid.TorchFeaturePyramid(
            stages=[nn.Conv2d(n, n + 1, 3, stride=2, padding=1) for n in (2, 3, 4)],
            laterals=[nn.Conv2d(n + 1, 6, 1) for n in (2, 3, 4)],
            smooths=[nn.Conv2d(6, 6, 3, padding=1) for n in (2, 3, 4)],
        ),
        (2, 16, 8),
    ),
    "level-shared layer": images(
        LevelSharedLayer(Chain((Conv2d("conv", 3, 4, 3, padding=1), Tanh())), sides=(5, 2)),
        lambda: torch_pyramid.TorchLevelSharedLayer(
            nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh()), sides=(5, 2)
        ),
        (3, 29),
    ),
    "residual": images(
        Residual(Conv2d("conv", 3, 4, 3, stride=2, padding=1), Conv2d("shortcut", 3, 4, 1, stride=2)),
        lambda: ResidualModule(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(3, 4, 1, stride=2)),
        (3, 6, 7),
    ),
}

every_counterpart = pytest.mark.parametrize("counterpart", COUNTERPARTS.values(), ids=COUNTERPARTS)


def assert_nearly_equal(actual: HostArray, expected: HostArray) -> None:
    """Assert that arrays differ by rounding only."""
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= TOLERANCE * max(1.0, np.abs(expected).max())


def random_arguments(counterpart: Counterpart) -> tuple[HostArray, HostArray, Any]:
    """Return the parameters of a layer in one vector, samples, and the module with these parameters.

    Samples are multiples of 1/4, so that windows of a pooling have several maxima.
    """
    rng, layout = np.random.default_rng(4), layout_of(counterpart.layer)
    params = rng.standard_normal(layout.parameter_count).astype("float32")
    x = np.round(4 * rng.standard_normal((SAMPLES, *counterpart.input_shape))).astype("float32") / 4
    if counterpart.vocabulary is not None:
        x = rng.integers(counterpart.vocabulary, size=x.shape)
    module = counterpart.build_module()
    load_parameters(module, layout, params)
    return params, x, module


def layout_of(layer: Layer) -> ParameterLayout:
    """Return the layout of the arrays of one layer."""
    return ParameterLayout(arrays=tuple(layer.parameter_shapes().items()))


def test_table_contains_every_layer() -> None:
    """A layer that is not in the table is not compared."""
    assert {type(counterpart.layer) for counterpart in COUNTERPARTS.values()} >= find_layer_classes()


@every_counterpart
def test_outputs_and_gradients_equal_those_of_pytorch(counterpart: Counterpart) -> None:
    """Finite differences show that a gradient fits its output; this test shows that the layer is the usual one."""
    params, x, module = random_arguments(counterpart)
    has_input_grad = counterpart.vocabulary is None
    inputs = torch.tensor(x, requires_grad=has_input_grad)
    expected = module(inputs)
    output_grad = np.random.default_rng(5).standard_normal(expected.shape).astype("float32")
    expected.backward(torch.tensor(output_grad))

    arrays = layout_of(counterpart.layer).unpack(params) | dict(counterpart.frozen_arrays)
    y, backward = counterpart.layer.forward(arrays, counterpart.as_taken(x), PassContext())
    gives_images = counterpart.takes_images if counterpart.gives_images is None else counterpart.gives_images
    taken_grad = np.moveaxis(output_grad, 0, -1) if gives_images else output_grad
    gradients, input_grad = run_backward(backward(np.ascontiguousarray(taken_grad), needs_input_grad=has_input_grad))

    assert_nearly_equal(counterpart.as_given(y), expected.detach().numpy())
    if has_input_grad:
        samples_first = np.moveaxis(input_grad, -1, 0) if counterpart.takes_images else input_grad
        assert_nearly_equal(samples_first, inputs.grad.numpy())
    if gradients:
        assert_nearly_equal(layout_of(counterpart.layer).pack(gradients), flatten_gradients(module))


def run_backward(generator: Any) -> tuple[dict[str, HostArray], HostArray]:
    """Return the gradients that a backward pass yields, by name, and the one that it returns."""
    gradients = {}
    while True:
        try:
            name, gradient = next(generator)
        except StopIteration as end:
            return gradients, end.value
        gradients[name] = gradient


@every_counterpart
def test_operations_equal_those_that_pytorch_counts(counterpart: Counterpart) -> None:
    """Compute times of devices and utilisation are derived from operations."""
    _, x, module = random_arguments(counterpart)
    # The counter does not know the fused attention of the CPU.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        module(torch.tensor(x))

    flops = counterpart.layer.measure_cost(counterpart.input_shape).flops_by_array

    assert SAMPLES * sum(flops.values()) == counter.get_total_flops()


def test_batch_normalisation_in_evaluation_equals_that_of_pytorch() -> None:
    """With the same mean and variance, both normalise alike; only where these come from differs."""
    counterpart = COUNTERPARTS["batch normalisation"]
    params, x, module = random_arguments(counterpart)
    mean, variance = np.linspace(-1, 1, 4, dtype="float32"), np.linspace(0.5, 2, 4, dtype="float32")
    module.eval()
    module.running_mean.copy_(torch.tensor(mean))
    module.running_var.copy_(torch.tensor(variance))

    arrays = layout_of(counterpart.layer).unpack(params)
    context = PassContext(is_training=False, fixed_statistics={"norm": (mean[:, None], variance[:, None])})
    y, _ = counterpart.layer.forward(arrays, counterpart.as_taken(x), context)

    assert_nearly_equal(counterpart.as_given(y), module(torch.tensor(x)).detach().numpy())


def test_dropout_keeps_and_scales_as_many_numbers_as_pytorch() -> None:
    """The random numbers differ; their distribution must not. One million numbers: the share is exact to 0.2 %."""
    x, rate = np.ones((1000, 1000), "float32"), 0.3

    ours, _ = Dropout(rate).forward({}, x, PassContext())
    theirs = nn.Dropout(rate)(torch.tensor(x)).numpy()

    np.testing.assert_allclose(np.unique(ours), np.unique(theirs), rtol=1e-6)
    assert (ours == 0).mean() == pytest.approx((theirs == 0).mean(), abs=2e-3)
