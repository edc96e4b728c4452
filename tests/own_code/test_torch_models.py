"""A user's module of PyTorch gives the bits of plain PyTorch, and is checked before anything starts."""

import inspect
import re
from typing import Any

import numpy as np
import pytest
from user_code import torch_net

torch = pytest.importorskip("torch")

from pydantic import ValidationError  # noqa: E402 - after the check for PyTorch

from services.cluster.addresses import DummyAddresses  # noqa: E402
from services.learning.datasets import LearningTask  # noqa: E402 - after the check for PyTorch
from services.learning.models import TorchModel  # noqa: E402
from services.learning.models.own import torch_model, torch_network  # noqa: E402
from services.learning.models.own.checked_samples import draw_samples  # noqa: E402
from services.learning.own_code import OwnCodeError, load_user_object  # noqa: E402
from services.learning.randomness import BatchRandomness  # noqa: E402
from services.plan import make_plan  # noqa: E402
from services.scenario.scenario import Scenario  # noqa: E402

pytestmark = pytest.mark.torch

PICTURES = LearningTask(inputs=(1, 8, 8), outputs=10, loss="cross_entropy")
NUMBERS = LearningTask(inputs=(5,), outputs=3, loss="mse")
TOKENS = LearningTask(inputs=(7,), outputs=11, loss="next_token")

EXAMPLES = {
    "convolution": (torch_net("Net"), PICTURES),
    "dropout": (torch_net("Net", arguments={"dropout": 0.3}), PICTURES),
    "values": (torch_net("Values"), NUMBERS),
    "batch normalisation": (torch_net("Normalised", buffers="recompute"), NUMBERS),
    "tokens": (torch_net("Decoder"), TOKENS),
    "checkpoints": (torch_net("Checkpointed"), NUMBERS),
}
every_example = pytest.mark.parametrize(("model", "task"), EXAMPLES.values(), ids=EXAMPLES)


def plain_module(model: TorchModel, task: LearningTask, dtype: str) -> Any:
    """Return the user's module as a user would create it, with the initial parameters of the seed 0."""
    user_class = load_user_object(model.module)
    sizes = {"Net": {}, "Decoder": {"outputs": task.outputs}}
    torch.manual_seed(0)
    arguments = sizes.get(model.module.name, {"inputs": task.inputs, "outputs": task.outputs}) | model.arguments
    return user_class(**arguments).to(getattr(torch, dtype))


def plain_loss(outputs: Any, targets: Any, task: LearningTask) -> Any:
    functional = torch.nn.functional
    if task.loss == "mse":
        return functional.mse_loss(outputs, targets)
    return functional.cross_entropy(outputs.reshape(-1, task.outputs), targets.reshape(-1))


@every_example
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_loss_and_gradient_have_the_bits_of_plain_pytorch(model: TorchModel, task: LearningTask, dtype: str) -> None:
    """The emulated cluster trains the user's model, not a similar one."""
    x, y = draw_samples(task, dtype)
    randomness = BatchRandomness(3, 4, 5)
    params = model.init_parameters(task, 0, dtype)
    module = plain_module(model, task, dtype)
    torch.manual_seed(randomness.create_seed())
    expected_loss = plain_loss(module(torch.tensor(x)), torch.tensor(y), task)
    expected_loss.backward()

    loss, gradient = model.loss_and_grad(task, params, x, y, randomness)

    trained = [param for param in module.parameters() if param.requires_grad]
    expected = [torch.zeros_like(param) if param.grad is None else param.grad for param in trained]
    assert params.tobytes() == torch.cat([param.detach().flatten() for param in trained]).numpy().tobytes()
    assert loss == expected_loss.item()
    assert gradient.tobytes() == torch.cat([each.flatten() for each in expected]).numpy().tobytes()


@every_example
def test_gradients_in_one_vector_have_the_bits_of_those_in_parts(model: TorchModel, task: LearningTask) -> None:
    """Strategies take them in one of both ways; also after an evaluation, and with other parameters."""
    x, y = draw_samples(task, "float32")
    for seed in (1, 2):
        params, randomness = model.init_parameters(task, seed, "float32"), BatchRandomness(3, seed, 5)

        loss, vector = model.loss_and_grad(task, params, x, y, randomness)
        loss_of_parts, parts = model.compute_gradients(task, params, x, y, randomness)
        model.create_output_function(task, params, x)(x)

        assert loss == loss_of_parts
        for vector_range, gradient in parts:
            assert vector_range.view(vector).tobytes() == gradient.tobytes()


@every_example
def test_views_of_a_long_vector_and_copies_of_a_short_one_give_the_same_bits(
    model: TorchModel, task: LearningTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The length decides only which way takes less time."""
    x, y = draw_samples(task, "float32")
    params = [model.init_parameters(task, seed, "float32") for seed in (1, 2, 1)]
    results = []
    for limit in (0, 1_000_000):
        monkeypatch.setattr(torch_network, "MAX_COPIED_PARAMS", limit)
        torch_model._network_of.cache_clear()
        before = [vector.tobytes() for vector in params]
        results.append([model.loss_and_grad(task, vector, x, y)[1].tobytes() for vector in params])
        assert [vector.tobytes() for vector in params] == before
    torch_model._network_of.cache_clear()

    assert results[0] == results[1]
    assert results[0][0] == results[0][2] != results[0][1]


@every_example
def test_gradients_come_from_the_end_of_the_vector(model: TorchModel, task: LearningTask) -> None:
    """Buckets of an exchange are contiguous ranges."""
    params = model.init_parameters(task, 1, "float32")

    parts = list(model.compute_gradients(task, params, *draw_samples(task, "float32")).gradients)

    ranges = list(model.parameter_layout(task).vector_ranges.values())
    assert [part.vector_range for part in parts] == ranges[::-1]
    assert all(part.gradient.shape == (part.vector_range.size,) for part in parts)


@every_example
def test_every_example_passes_the_checks_and_survives_a_json_round_trip(model: TorchModel, task: LearningTask) -> None:
    """The plan is the record of the run."""
    assert model.unsupported_task_reason(task) is None
    assert TorchModel.model_validate_json(model.model_dump_json()) == model


@every_example
def test_an_empty_share_of_a_batch_has_no_gradient(model: TorchModel, task: LearningTask) -> None:
    """The mean over no samples is not defined in PyTorch."""
    x, y = draw_samples(task, "float32")
    params = model.init_parameters(task, 1, "float32")

    loss, gradient = model.loss_and_grad(task, params, x[:0], y[:0])

    assert loss == 0
    assert not gradient.any()


@every_example
def test_outputs_of_a_sample_do_not_depend_on_the_other_samples(model: TorchModel, task: LearningTask) -> None:
    """Test data are evaluated in batches of any size."""
    x, _ = draw_samples(task, "float64")
    compute_outputs = model.create_output_function(task, model.init_parameters(task, 0, "float64"), x)

    together, alone = compute_outputs(x), np.concatenate([compute_outputs(x[[k]]) for k in range(len(x))])

    np.testing.assert_allclose(alone, together, rtol=1e-10, atol=1e-14)


def test_tied_weights_are_one_array_and_frozen_parameters_none() -> None:
    """The vector has what the optimiser updates, once."""
    layout = torch_net("Decoder").parameter_layout(TOKENS)

    names = ["embedding.weight", "mixed.weight", "mixed.bias", "unused.weight", "unused.bias"]
    assert [name for name, _ in layout.arrays] == names


def test_a_parameter_without_influence_has_a_zero_gradient() -> None:
    """PyTorch gives None; an exchange needs numbers."""
    model = torch_net("Decoder")
    x, y = draw_samples(TOKENS, "float32")

    _, gradient = model.loss_and_grad(TOKENS, model.init_parameters(TOKENS, 0, "float32"), x, y)

    arrays = model.parameter_layout(TOKENS).unpack(gradient)
    assert not arrays["unused.weight"].any()
    assert arrays["mixed.weight"].any()


def test_frozen_parameters_are_the_same_for_every_seed() -> None:
    """An evaluation has no seed, so it must not depend on the trial's."""
    model = torch_net("Decoder")
    x, y = draw_samples(TOKENS, "float32")
    params = model.init_parameters(TOKENS, 0, "float32")

    losses = {model.loss_and_grad(TOKENS, params, x, y, BatchRandomness(seed))[0] for seed in (1, 2)}

    assert len(losses) == 1


def test_dropout_follows_from_seed_step_and_rank() -> None:
    """A step that is computed again has the same masks, and workers have different ones."""
    model = torch_net("Net", arguments={"dropout": 0.3})
    x, y = draw_samples(PICTURES, "float32")
    params = model.init_parameters(PICTURES, 0, "float32")
    draws = [BatchRandomness(*numbers) for numbers in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]

    first, second = ([model.loss_and_grad(PICTURES, params, x, y, draw)[0] for draw in draws] for _ in range(2))

    assert first == second
    assert len(set(first)) == len(draws)


def test_statistics_of_batch_normalisation_come_from_the_calibration_samples() -> None:
    """A training pass over the samples in plain PyTorch gives the same outputs, and earlier passes have no effect."""
    model = torch_net("Normalised", buffers="recompute")
    params = model.init_parameters(NUMBERS, 0, "float64")
    rng = np.random.default_rng(1)
    calibration_x, x = rng.standard_normal((40, 5)), rng.standard_normal((3, 5))
    module = plain_module(model, NUMBERS, "float64")
    module[1].momentum = 1.0
    module(torch.tensor(calibration_x))
    expected = module.eval()(torch.tensor(x)).detach().numpy()

    for _ in range(2):
        model.create_output_function(NUMBERS, params, 9 + x)(x)
        outputs = model.create_output_function(NUMBERS, params, calibration_x)(x)
        np.testing.assert_allclose(outputs, expected, rtol=1e-12)


def test_operations_are_those_that_pytorch_counts() -> None:
    """A worker's speed may be derived from them: 2 · 9 · 4 · 64 of the convolution, 2 · 64 · 10 of the dense layer."""
    flops = torch_net("Net").forward_flops(PICTURES)

    assert sum(flops.values()) == pytest.approx(2 * 9 * 4 * 64 + 2 * 64 * 10)


def test_a_function_that_returns_a_module_is_the_same_model() -> None:
    """Many users write a function instead of a class; arguments and sizes of the task are passed in the same way."""
    x, y = draw_samples(NUMBERS, "float32")
    results = []
    for name in ("Values", "make_values"):
        model = torch_net(name, arguments={"hidden": 4})
        assert model.unsupported_task_reason(NUMBERS) is None
        params = model.init_parameters(NUMBERS, 1, "float32")
        results.append((params.tobytes(), model.loss_and_grad(NUMBERS, params, x, y)[1].tobytes()))

    assert results[0] == results[1]


def test_a_function_that_returns_no_module_is_rejected() -> None:
    """The message states the result."""
    with pytest.raises(OwnCodeError, match=r"make_nothing: the function returns NoneType; return a torch\.nn\.Module"):
        torch_net("make_nothing").unsupported_task_reason(NUMBERS)


def test_the_loss_may_be_a_function_of_the_user() -> None:
    """It replaces the loss of training; metrics stay those of the task."""
    model = torch_net("Values", loss="absolute_error")
    x, y = draw_samples(NUMBERS, "float64")
    params = model.init_parameters(NUMBERS, 0, "float64")

    loss, _ = model.loss_and_grad(NUMBERS, params, x, y)

    outputs = model.create_output_function(NUMBERS, params, x)(x)
    assert loss == pytest.approx(np.abs(outputs - y).mean(), rel=1e-12)
    assert model.unsupported_task_reason(NUMBERS) is None


MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "NoModule": ({}, "module", r"torch_nets\.py:\d+: NoModule is not a subclass of torch\.nn\.Module"),
    "Empty": ({}, "module", "Empty: the module has no trainable parameters; create layers in __init__"),
    "Unseeded": ({}, "module", "__init__ draws other parameters each time; draw random numbers only with PyTorch"),
    "RaisesInForward": ({}, "module", r"torch_nets\.py:\d+: RaisesInForward raised RuntimeError: mat1 and mat2 shapes"),
    "Counter": ({}, "module", "a training pass changes the buffers calls; Ensayo exchanges parameters"),
    "Normalised": ({}, "buffers", r"the buffers 1\.running_mean, 1\.running_var, .*; write buffers: recompute"),
    "Decoder": ({}, "module", r"raised RuntimeError|raised IndexError|forward should return"),
    "make_labels": (
        {},
        "module",
        r"an array \(4, 3\) .*, not \(4, 1\) of float32; the dataset has 3 target values per sample",
    ),
    "make_pair": ({}, "module", r"forward should return an array \(4, 3\) of float32 for 4 samples, not tuple"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_module_is_reported_before_anything_starts(name: str) -> None:
    """The message names the user's class and the key to change."""
    keys, key, message = MISTAKES[name]

    with pytest.raises(OwnCodeError, match=message) as raised:
        torch_net(name, **keys).unsupported_task_reason(NUMBERS)

    assert raised.value.key_path == (key,)


EXPECTED_LOSS = (
    r"; the loss gets outputs \(4, 3\) of float32 and targets \(4, 3\) of float32, and should return the mean loss "
    r"over the samples: a tensor of shape \(\), as the losses of PyTorch do with reduction=\"mean\"$"
)
LOSS_MISTAKES = {
    "summed_error": r"with 8 copies of each sample, the loss grows from [\d.]+ to [\d.]+, so it is a sum",
    "unreduced_error": r"it returns a tensor \(4, 3\) of float32, not one number",
    "error_as_number": "it returns a float, not a tensor, so PyTorch cannot compute a gradient",
    "detached_error": "it returns a tensor that is detached from the outputs, so there is no gradient",
    "error_of_transposed_targets": "raised RuntimeError: The size of tensor a .*",
    "logarithmic_error": "the loss is nan for finite outputs",
}


@pytest.mark.parametrize("loss", LOSS_MISTAKES)
def test_a_mistake_in_the_loss_function_is_reported_at_its_line(loss: str) -> None:
    """The module is correct, so the message names the loss, what it returned, and what it should return."""
    model = torch_net("Values", loss=loss)
    source = inspect.getsourcelines(load_user_object(model.loss, "loss"))
    lines = "|".join(str(source[1] + number) for number in range(len(source[0])))

    with pytest.raises(OwnCodeError) as raised:
        model.unsupported_task_reason(NUMBERS)

    assert raised.value.key_path == ("loss",)
    message = rf"torch_nets\.py:({lines}): {loss}:? {LOSS_MISTAKES[loss]}{EXPECTED_LOSS}"
    assert re.search(message, str(raised.value)), raised.value


def test_a_sum_over_samples_is_found_behind_dropout() -> None:
    """Two training passes have different masks, so their losses have no exact ratio."""
    model = torch_net("Net", loss="summed_cross_entropy", arguments={"dropout": 0.25})

    with pytest.raises(OwnCodeError, match="with 8 copies of each sample, the loss grows from") as raised:
        model.unsupported_task_reason(PICTURES)

    assert raised.value.key_path == ("loss",)


def test_a_loss_over_pairs_of_samples_is_no_sum() -> None:
    """With copies of each sample, each one has more others, so the mean grows, by less than a factor of three."""
    assert torch_net("Values", loss="contrastive_error").unsupported_task_reason(NUMBERS) is None


def test_too_few_outputs_for_the_classes_are_reported_as_such() -> None:
    """PyTorch would state a target out of bounds, and the targets are correct."""
    message = (
        r"Net: forward should return an array \(4, 10\) of float32 for 4 samples, not \(4, 7\) of float32; the dataset "
        "has 10 classes: one score per class for each sample"
    )

    with pytest.raises(OwnCodeError, match=message) as raised:
        torch_net("Net", arguments={"classes": 7}).unsupported_task_reason(PICTURES)

    assert raised.value.key_path == ("module",)


def test_the_loss_of_another_task_is_rejected() -> None:
    """A regression has no classes."""
    module = torch_net("Values").module

    with pytest.raises(OwnCodeError, match="the loss of this dataset's task is mse") as raised:
        TorchModel(module=module, loss="cross_entropy").unsupported_task_reason(NUMBERS)

    assert raised.value.key_path == ("loss",)


def test_a_loss_in_another_folder_is_rejected() -> None:
    """Nodes get one folder of code."""
    model = torch_net("Values", loss="absolute_error")
    other = model.model_copy(update={"loss": model.loss.model_copy(update={"folder": "/elsewhere"})})

    with pytest.raises(OwnCodeError, match="the file must be in the folder of"):
        other.unsupported_task_reason(NUMBERS)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"worker": {"device": "cuda"}}, "worker-0 declares device: cuda, but models of kind torch compute on the CPU"),
        ({"worker": {"memory": "128MiB"}}, "needs at least 384MiB, more than 128MiB; write for example memory: 512MiB"),
        ({"server": {"memory": "128MiB"}}, "needs at least 384MiB, more than 128MiB; write for example memory: 512MiB"),
    ],
)
def test_nodes_that_cannot_run_pytorch_are_rejected(cluster: dict[str, Any], message: str) -> None:
    """Without the check, the kernel would kill the node at its start."""
    document = scenario_document(cluster)

    with pytest.raises(ValidationError, match=message):
        Scenario.decode(document)


def scenario_document(cluster: dict[str, Any]) -> dict[str, Any]:
    workload = {
        "dataset": {"kind": "linnerud"},
        "model": torch_net("Values").model_dump(mode="json"),
        "optimiser": {"kind": "sgd", "rate": 0.1},
        "batch": 4,
    }
    strategies = {"server": {"kind": "parameter_server"}}
    return {"name": "mine", "workload": workload, "cluster": cluster, "strategies": strategies, "baseline": False}


def test_workers_compute_on_the_cpu_even_if_the_host_has_a_gpu() -> None:
    """The device `auto` takes a GPU, whose arrays the model does not accept."""
    plan = make_plan(Scenario.decode(scenario_document({})).trials()[0], "run", "docker", DummyAddresses())

    assert {node.device for node in plan.node_plans_of_role("worker")} == {"cpu"}


def test_pytorch_computes_on_one_thread_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """More threads take cores from other nodes, and change the order of sums."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch_model.import_torch.cache_clear()
    torch.set_num_threads(2)

    torch_model.import_torch()

    assert torch.get_num_threads() == 1
