"""Tests of every model: gradients are right, initial parameters follow the seed, batches of any size work."""

from typing import get_args

import numpy as np
import pytest
from pydantic import TypeAdapter
from user_code import perceptron

from services.learning.datasets import LearningTask
from services.learning.models import (
    AnyModel,
    BertMini,
    DiffusionMini,
    GptMini,
    LeNet5,
    LinearModel,
    LlamaMiniLora,
    Mlp,
    Model,
    ResNet,
    RetinaNetMini,
    TorchModel,
)
from services.learning.optimisers import Sgd
from services.learning.randomness import DEFAULT_RANDOMNESS
from services.runtime.device import ComputeDevice
from services.schema.arrays import HostArray

PICTURES = LearningTask(inputs=(1, 8, 8), outputs=10, loss="cross_entropy")
WIDE_PICTURES = LearningTask(inputs=(3, 5, 9), outputs=4, loss="cross_entropy")
NUMBERS = LearningTask(inputs=(5,), outputs=3, loss="mse")
NOISY_PICTURES = LearningTask(inputs=(2, 6, 4), outputs=3, loss="denoising")
SCENES = LearningTask(inputs=(3, 16, 16), outputs=2, loss="detection")
NEXT_TOKENS = LearningTask(inputs=(7,), outputs=48, loss="next_token")
MASKED_TOKENS = LearningTask(inputs=(7,), outputs=11, loss="masked_token")

EXAMPLES: list[tuple[Model, LearningTask]] = [
    (LinearModel(), PICTURES),
    (LinearModel(), NUMBERS),
    (Mlp(hidden=(16,), activation="relu"), PICTURES),
    (Mlp(hidden=(8, 6), activation="tanh"), NUMBERS),
    (LeNet5(input_side=16, activation="tanh"), PICTURES),
    (LeNet5(activation="relu"), PICTURES),
    (ResNet(depth=8, width=4, norm="group"), PICTURES),
    (ResNet(depth=8, width=4, norm="batch"), WIDE_PICTURES),
    (RetinaNetMini(width=8), SCENES),
    (DiffusionMini(width=8), NOISY_PICTURES),
    (BertMini(layers=2, width=8, heads=2), MASKED_TOKENS),
    (GptMini(layers=2, width=8, heads=4), NEXT_TOKENS),
    (GptMini(layers=1, width=6, heads=1, dropout=0.2), NEXT_TOKENS),
    (LlamaMiniLora(rank=2), NEXT_TOKENS),
    (LlamaMiniLora(rank=3, alpha=1, targets=("gate", "key", "down")), NEXT_TOKENS),
    (perceptron(hidden=9), PICTURES),
    (perceptron(), NUMBERS),
]
# With batch normalisation, the output for a sample depends on the other samples of the batch.
BATCH_NORMALISED = [example for example in EXAMPLES if isinstance(example[0], ResNet) and example[0].norm == "batch"]
PRIOR_BIASES = {"class.output.bias"}  # of retinanet_mini: a class is improbable at the start


def each_example(examples: list[tuple[Model, LearningTask]]) -> pytest.MarkDecorator:
    """Return the mark of a test that runs with each of the examples."""
    return pytest.mark.parametrize(
        ("model", "task"), examples, ids=[f"{model!r}-{task.loss}" for model, task in examples]
    )


# They draw random numbers in training, which depend on the shape of the batch and on the library of the device.
RANDOM = [
    example
    for example in EXAMPLES
    if isinstance(example[0], BertMini | DiffusionMini) or (isinstance(example[0], GptMini) and example[0].dropout)
]

every_model = each_example(EXAMPLES)
every_model_of_independent_samples = each_example(
    [one for one in EXAMPLES if one not in BATCH_NORMALISED and one not in RANDOM]
)
every_model_without_random_numbers = each_example([one for one in EXAMPLES if one not in RANDOM])


def samples(task: LearningTask, count: int, dtype: str = "float64") -> tuple[HostArray, HostArray]:
    """Return `count` random samples and targets for them."""
    rng = np.random.default_rng(7)
    if task.loss in ("next_token", "masked_token"):
        x, y = rng.integers(1, task.outputs, size=(2, count, *task.inputs))
        return x, y
    x = rng.standard_normal((count, *task.inputs)).astype(dtype)
    targets = {
        "cross_entropy": rng.integers(task.outputs, size=count),
        "mse": rng.standard_normal((count, task.outputs)).astype(dtype),
        "detection": boxes(rng, task, count).astype(dtype),
        "denoising": rng.integers(task.outputs, size=count),
    }
    return x, targets[task.loss]


def boxes(rng: np.random.Generator, task: LearningTask, count: int) -> HostArray:
    """Return targets with one box per sample, of a quarter to half the side of the image, and one unused row."""
    side = task.inputs[-1]
    corners, sizes = rng.uniform(0, side / 2, (count, 2)), rng.uniform(side / 4, side / 2, (count, 2))
    rows = np.column_stack([rng.integers(task.outputs, size=count), corners, corners + sizes])
    return np.stack([rows, np.broadcast_to([-1.0, 0, 0, 0, 0], rows.shape)], axis=1)


def test_examples_table_contains_every_model() -> None:
    """A model that is not in the table is not tested; tests/own_code tests the one that needs PyTorch."""
    union, _ = get_args(AnyModel)

    assert {type(model) for model, _ in EXAMPLES} == set(get_args(union)) - {TorchModel}


@every_model
def test_model_survives_a_json_round_trip(model: Model, task: LearningTask) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyModel).validate_json(model.model_dump_json()) == model


@every_model
def test_gradient_agrees_with_finite_differences(model: Model, task: LearningTask) -> None:
    """A model with a wrong gradient may still learn, only worse, so the gradient is compared with its definition.

    Directional derivatives along random directions include every entry; central differences have an error of O(h²).
    """
    x, y = samples(task, 4)
    params = model.init_parameters(task, 3, "float64")
    rng, h = np.random.default_rng(5), 1e-6
    _, grad = model.loss_and_grad(task, params, x, y)

    for _ in range(4):
        along = rng.standard_normal(params.size) / np.sqrt(params.size)
        ahead, _ = model.loss_and_grad(task, params + h * along, x, y)
        behind, _ = model.loss_and_grad(task, params - h * along, x, y)

        assert (ahead - behind) / (2 * h) == pytest.approx(grad @ along, rel=1e-6, abs=1e-8)


@every_model
def test_gradient_of_every_array_agrees_with_finite_differences(model: Model, task: LearningTask) -> None:
    """An error in a small array, such as a bias, hides in directions over all entries: test one entry per array."""
    x, y = samples(task, 3)
    params, h = model.init_parameters(task, 3, "float64"), 1e-6
    _, grad = model.loss_and_grad(task, params, x, y)
    layout = model.parameter_layout(task)

    for name, array in layout.unpack(np.arange(params.size)).items():
        entry = array.flat[array.size // 2]
        step = h * (np.arange(params.size) == entry)
        ahead, _ = model.loss_and_grad(task, params + step, x, y)
        behind, _ = model.loss_and_grad(task, params - step, x, y)

        assert (ahead - behind) / (2 * h) == pytest.approx(grad[entry], rel=1e-6, abs=1e-8), name


@every_model
def test_gradients_come_array_by_array_from_the_end_of_the_vector(model: Model, task: LearningTask) -> None:
    """An exchange may send a gradient while the backward pass goes on; a bucket is then one contiguous range."""
    x, y = samples(task, 4)
    params = model.init_parameters(task, 3, "float64")

    loss, gradients = model.compute_gradients(task, params, x, y)
    parts = list(gradients)

    assert [part.vector_range for part in parts] == list(reversed(model.parameter_layout(task).vector_ranges.values()))
    whole_loss, whole = model.loss_and_grad(task, params, x, y)
    assert (loss, np.concatenate([part.gradient for part in reversed(parts)]).tolist()) == (whole_loss, whole.tolist())


@every_model
def test_operations_are_known_for_arrays_of_the_model(model: Model, task: LearningTask) -> None:
    """The pace of a bucket, and the compute time of a device, are derived from operations."""
    flops = model.forward_flops(task)

    assert set(flops) <= set(model.parameter_layout(task).vector_ranges)
    assert sum(flops.values()) > 0


@every_model
def test_gradient_steps_reduce_the_loss(model: Model, task: LearningTask, device: ComputeDevice) -> None:
    """Training needs this of a model, on every device."""
    x, y = map(device.to_device, samples(task, 16, "float32"))
    params = device.to_device(model.init_parameters(task, 0, "float32"))
    optimiser = Sgd(rate=0.02)
    state = optimiser.init_state(params)
    losses = []

    for _ in range(8):
        loss, grad = model.loss_and_grad(task, params, x, y)
        params, state = optimiser.update_params(params, grad, state)
        losses.append(loss)

    assert losses[-1] < losses[0]


@every_model_without_random_numbers
def test_gradient_is_the_same_on_all_devices(model: Model, task: LearningTask, device: ComputeDevice) -> None:
    """Replicas on different devices train one model; except for rounding, they must compute the same gradient."""
    x, y = samples(task, 8)
    params = model.init_parameters(task, 0, "float64")
    loss, grad = model.loss_and_grad(task, params, x, y)

    device_loss, device_grad = model.loss_and_grad(task, *map(device.to_device, (params, x, y)))

    assert device_loss == pytest.approx(loss, rel=1e-10)
    np.testing.assert_allclose(device.to_host(device_grad), grad, rtol=1e-8, atol=1e-12)


@every_model
def test_initial_parameters_are_a_pure_function_of_the_seed(model: Model, task: LearningTask) -> None:
    """Replicas start from the same bits without communication; another seed gives another run."""
    first, repeated, other_seed = (model.init_parameters(task, seed, "float32") for seed in (1, 1, 2))

    assert first.tobytes() == repeated.tobytes()
    assert first.tobytes() != other_seed.tobytes()


@every_model
def test_initial_parameters_have_the_size_of_the_layout(model: Model, task: LearningTask) -> None:
    """Shards and payloads are computed from the size of the layout."""
    params = model.init_parameters(task, 0, "float32")

    assert params.shape == (model.parameter_layout(task).parameter_count,)


@every_model
def test_biases_start_at_zero_and_weights_do_not(model: Model, task: LearningTask) -> None:
    """Equal weights would stay equal forever; biases have no symmetry to break.

    An adapter starts without effect: the second of its two factors is zero.
    """
    arrays = model.parameter_layout(task).unpack(model.init_parameters(task, 0, "float64"))

    assert all(
        np.any(array) == (name.endswith(("weight", "lora_a")) or name in PRIOR_BIASES) for name, array in arrays.items()
    )


@every_model
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_have_the_type_of_the_parameters(
    model: Model, task: LearningTask, dtype: str, device: ComputeDevice
) -> None:
    """A single fp64 intermediate result would double the bytes that are sent."""
    x, y = map(device.to_device, samples(task, 4, dtype))
    params = device.to_device(model.init_parameters(task, 0, dtype))

    _, grad = model.loss_and_grad(task, params, x, y)
    inputs, _ = model.draw_inputs_and_targets(task, x, y, DEFAULT_RANDOMNESS)
    outputs = model.create_output_function(task, params, x)(inputs)

    assert params.dtype == grad.dtype == outputs.dtype == np.dtype(dtype)


@every_model_of_independent_samples
def test_gradient_is_the_mean_of_the_gradients_of_single_samples(model: Model, task: LearningTask) -> None:
    """Unequal shares are weighted by their samples, which is right only for means, down to a batch of one."""
    x, y = samples(task, 3)
    params = model.init_parameters(task, 0, "float64")

    loss, grad = model.loss_and_grad(task, params, x, y)
    losses, grads = zip(*(model.loss_and_grad(task, params, x[[i]], y[[i]]) for i in range(3)), strict=True)

    assert loss == pytest.approx(np.mean(losses))
    np.testing.assert_allclose(grad, np.mean(grads, axis=0), rtol=1e-10, atol=1e-14)


@every_model
def test_outputs_of_a_sample_do_not_depend_on_the_other_samples_in_evaluation(model: Model, task: LearningTask) -> None:
    """Test data are evaluated in batches of any size; layers with statistics of a batch take them from training."""
    (x, y), calibration_x = samples(task, 5), samples(task, 20)[0][5:]
    inputs, _ = model.draw_inputs_and_targets(task, x, y, DEFAULT_RANDOMNESS)
    compute_outputs = model.create_output_function(task, model.init_parameters(task, 0, "float64"), calibration_x)

    together, alone = compute_outputs(inputs), np.concatenate([compute_outputs(inputs[[i]]) for i in range(5)])

    np.testing.assert_allclose(alone, together, rtol=1e-10, atol=1e-14)


@every_model
def test_empty_batch_gives_zero_loss_and_zero_gradient(model: Model, task: LearningTask, device: ComputeDevice) -> None:
    """The last batch of an epoch may have no samples for a rank; it still takes part in the sum."""
    x, y = map(device.to_device, samples(task, 0))
    params = device.to_device(model.init_parameters(task, 0, "float64"))

    loss, grad = model.loss_and_grad(task, params, x, y)

    assert loss == 0
    assert grad.shape == (model.parameter_layout(task).parameter_count,)
    assert not grad.any()


@every_model
def test_model_does_not_change_its_arguments(model: Model, task: LearningTask) -> None:
    """The caller sends its parameters while the next step is computed."""
    x, y = samples(task, 2)
    params = model.init_parameters(task, 0, "float64")
    before = [array.copy() for array in (params, x, y)]

    model.loss_and_grad(task, params, x, y)
    inputs, _ = model.draw_inputs_and_targets(task, x, y, DEFAULT_RANDOMNESS)
    model.create_output_function(task, params, x)(inputs)

    assert all(np.array_equal(old, new) for old, new in zip(before, (params, x, y), strict=True))
