"""Model of the user that is a module of PyTorch."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.datasets.base import LearningTask
from services.learning.layout import ParameterLayout
from services.learning.models.base import LossAndGradients, ModelFolders, OutputFunction, RangeGradient
from services.learning.models.own.base import UserModel
from services.learning.models.own.checked_samples import draw_samples
from services.learning.models.own.result_checks import FunctionNames, ResultChecks
from services.learning.models.own.torch_loss import Tensor, TrainingLoss, loss_of_task, loss_of_user
from services.learning.models.own.torch_network import TorchNetwork
from services.learning.objectives import LossName
from services.learning.own_code import (
    OwnCodeError,
    UserCode,
    call_user_object,
    describe_definition,
    explain_own_errors,
    load_user_object,
    make_error,
)
from services.learning.own_code.error_text import describe_place
from services.learning.own_code.torch_package import TorchInstallation, import_torch
from services.learning.randomness import DEFAULT_RANDOMNESS, BatchRandomness
from services.schema.arrays import Array, HostArray, Vector

FUNCTION_NAMES = FunctionNames(parameters="__init__: a parameter", loss="loss", outputs="forward")
CHECKED_TYPE = "float32"
Purpose = Literal["training", "evaluation"]


class TorchModel(UserModel):
    """Model of the user: a class derived from `torch.nn.Module`, or a function that returns such a module.

    It gets `inputs` (shape of one sample) and `outputs` (number of outputs) if it has parameters of these
    names.
    """

    kind: Literal["torch"] = "torch"
    loss: Literal["cross_entropy", "mse", "next_token"] | UserCode | None = Field(
        None,
        description="loss of training: that of the task (the default), or a function of the user as FILE:NAME, which "
        "maps outputs and targets to the mean loss",
    )
    buffers: Literal["refuse", "recompute"] = Field(
        "refuse",
        description="buffers that a training pass changes. recompute: mean and variance of batch normalisations are "
        "computed from training samples before each evaluation; refuse: reject such modules",
    )
    installation: TorchInstallation | None = Field(None, description="PyTorch on the host; set by Ensayo")
    supported_losses: ClassVar[tuple[LossName, ...]] = ("cross_entropy", "mse", "next_token")
    computes_on_gpu: ClassVar[bool] = False
    min_node_memory_bytes: ClassVar[int] = 384 << 20  # a node with PyTorch takes 332 MB, before the first array

    __hash__ = UserModel.__hash__

    @property
    def folders_on_nodes(self) -> ModelFolders:
        packages = Path(self.installation.folder) if self.installation else None
        return super().folders_on_nodes._replace(packages=packages)

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:
        if isinstance(self.loss, str) and self.loss != learning_task.loss:
            message = (
                f"the loss of this dataset's task is {learning_task.loss}; write it, or name a function of your own"
            )
            raise OwnCodeError(("loss",), message)
        if isinstance(self.loss, UserCode) and self.loss.folder != self.module.folder:
            message = f"{describe_place(self.loss)}: the file must be in the folder of {describe_place(self.module)}"
            raise OwnCodeError(("loss",), message)
        _check_once(self, learning_task)
        return None

    def explain_share_dependence(self) -> str:
        if self.buffers != "recompute":
            return ""  # batch normalisations with recorded statistics are refused
        return (
            "the batch normalisations of the model (buffers: recompute) normalise over a worker's share of the batch; "
            "use another normalisation, such as GroupNorm"
        )

    def parameter_layout(self, learning_task: LearningTask) -> ParameterLayout:
        return _network_of(self, learning_task, CHECKED_TYPE, "training").layout

    def init_parameters(self, learning_task: LearningTask, seed: int, dtype: npt.DTypeLike) -> HostArray:
        network = _build_network(self, learning_task, CHECKED_TYPE, seed)
        return network.initial_params().astype(dtype)

    def compute_gradients(
        self,
        learning_task: LearningTask,
        params: Vector,
        x: Array,
        y: Array,
        randomness: BatchRandomness = DEFAULT_RANDOMNESS,
    ) -> LossAndGradients:
        if len(x) == 0:
            return LossAndGradients(0.0, _list_zeros(self.parameter_layout(learning_task), params))
        network, loss, value = self._compute_loss(learning_task, params, x, y, randomness)
        return LossAndGradients(value, self._explain_backward(network.list_gradients(loss)))

    def loss_and_grad(
        self,
        learning_task: LearningTask,
        params: Vector,
        x: Array,
        y: Array,
        randomness: BatchRandomness = DEFAULT_RANDOMNESS,
    ) -> tuple[float, HostArray]:
        if len(x) == 0:
            return 0.0, np.zeros_like(params)
        network, loss, value = self._compute_loss(learning_task, params, x, y, randomness)
        with explain_own_errors(self.module, f"the backward pass of {self.module.name}"):
            return value, network.compute_gradient(loss)

    def training_loss(self, learning_task: LearningTask) -> TrainingLoss:
        """Return the loss of training: the user's function, or that of the task."""
        if isinstance(self.loss, UserCode):
            return loss_of_user(self.loss)
        return loss_of_task(self.module, learning_task.loss, self.installation)

    def _compute_loss(
        self, learning_task: LearningTask, params: Vector, x: Array, y: Array, randomness: BatchRandomness
    ) -> tuple[TorchNetwork, Tensor, float]:
        """Return the network with the parameters `params`, and the loss of a training step: its tensor and value."""
        network = _network_of(self, learning_task, str(params.dtype), "training")
        network.set_params(params)
        with explain_own_errors(self.module, self.module.name):
            outputs = network.compute_training_outputs(x, randomness)
        loss = self.training_loss(learning_task).compute(outputs, network.as_tensor(y))
        return network, loss, float(loss.detach())

    def _explain_backward(self, gradients: Iterator[RangeGradient]) -> Iterator[RangeGradient]:
        """Yield gradients; an error in the backward pass, which runs meanwhile, is one of the user's code."""
        with explain_own_errors(self.module, f"the backward pass of {self.module.name}"):
            yield from gradients

    def create_output_function(
        self, learning_task: LearningTask, params: Vector, calibration_x: Array
    ) -> OutputFunction:
        network = _network_of(self, learning_task, str(params.dtype), "evaluation")
        with explain_own_errors(self.module, self.module.name):
            if self.buffers == "recompute":
                network.recompute_statistics(params, calibration_x)

        def compute_outputs(inputs: Array) -> Array:
            with explain_own_errors(self.module, self.module.name):
                return network.compute_outputs(params, inputs)

        return compute_outputs

    def forward_flops(self, learning_task: LearningTask) -> Mapping[str, float]:
        """Return the operations that PyTorch counts in a forward pass of one sample, in equal parts per parameter."""
        layout = self.parameter_layout(learning_task)
        share = _count_operations(self, learning_task) / layout.parameter_count
        return {name: share * vector_range.size for name, vector_range in layout.vector_ranges.items()}


@cache  # every step needs the same module; a model and a task are values
def _network_of(model: TorchModel, learning_task: LearningTask, dtype: str, purpose: Purpose) -> TorchNetwork:  # noqa: ARG001 - evaluation has statistics of its own
    return _build_network(model, learning_task, dtype, seed=0)


def _build_network(model: TorchModel, learning_task: LearningTask, dtype: str, seed: int) -> TorchNetwork:
    """Return a new module of the user; all its random numbers follow from the seed."""
    torch = import_torch(model.installation)
    user_class = load_user_object(model.module)
    is_other_class = inspect.isclass(user_class) and not issubclass(user_class, torch.nn.Module)
    if is_other_class or not callable(user_class):
        message = f"{describe_definition(model.module)}: {model.module.name} is not a subclass of torch.nn.Module"
        raise OwnCodeError(("module",), message)
    parameters = inspect.signature(user_class).parameters
    given: dict[str, Any] = {"inputs": learning_task.inputs, "outputs": learning_task.outputs}
    torch.manual_seed(seed)
    named = {name: value for name, value in given.items() if name in parameters}
    module = call_user_object(model.module, **named | model.arguments)
    if not isinstance(module, torch.nn.Module):
        raise make_error(model.module, f"the function returns {type(module).__name__}; return a torch.nn.Module")
    if not any(param.requires_grad for param in module.parameters()):
        raise make_error(model.module, "the module has no trainable parameters; create layers in __init__")
    return TorchNetwork(torch, module, dtype)


@cache
def _count_operations(model: TorchModel, learning_task: LearningTask) -> float:
    network = _network_of(model, learning_task, CHECKED_TYPE, "evaluation")
    x = draw_samples(learning_task, CHECKED_TYPE).x[:1]
    counter = import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with counter, explain_own_errors(model.module, model.module.name):
        network.compute_outputs(network.initial_params(), x)
    return float(counter.get_total_flops())


@cache  # a sweep has many trials with the same model
def _check_once(model: TorchModel, learning_task: LearningTask) -> None:
    """Check the user's module with a few samples in fp32.

    Raises:
        OwnCodeError: the module can't be imported, its results are wrong, or a training pass changes its buffers.
    """
    with redirect_stdout(sys.stderr):  # commands of Ensayo print their results to the standard output
        _check_initial_params(model, learning_task)
        _check_buffers(model, learning_task)
        checks = ResultChecks(model, model.module, learning_task, CHECKED_TYPE, FUNCTION_NAMES)
        checks.check_outputs()
        _check_loss_function(model, learning_task)
        checks.check_loss()


def _check_initial_params(model: TorchModel, learning_task: LearningTask) -> None:
    first, second = (model.init_parameters(learning_task, 0, CHECKED_TYPE) for _ in range(2))
    if first.tobytes() != second.tobytes():
        message = "__init__ draws other parameters each time; draw random numbers only with PyTorch, without seeding it"
        raise make_error(model.module, message)


def _check_buffers(model: TorchModel, learning_task: LearningTask) -> None:
    network = _build_network(model, learning_task, CHECKED_TYPE, seed=0)
    with explain_own_errors(model.module, model.module.name):
        statistics, others = network.find_changing_buffers(draw_samples(learning_task, CHECKED_TYPE).x)
    if others:
        raise make_error(
            model.module,
            f"a training pass changes the buffers {', '.join(others)}; Ensayo exchanges parameters and keeps no other "
            "state between steps; make them parameters, or remove them",
        )
    if statistics and model.buffers == "refuse":
        raise OwnCodeError(
            ("buffers",),
            f"{describe_definition(model.module)}: {model.module.name}: a training pass changes the buffers "
            f"{', '.join(statistics)} of batch normalisations; write buffers: recompute to compute mean and variance "
            "from training samples before each evaluation, or use another normalisation, such as GroupNorm",
        )


def _check_loss_function(model: TorchModel, learning_task: LearningTask) -> None:
    """Check the loss function for outputs of the module, which are the same for one and for two copies of a sample."""
    network, (x, y) = (
        _network_of(model, learning_task, CHECKED_TYPE, "training"),
        draw_samples(learning_task, CHECKED_TYPE),
    )
    network.set_params(model.init_parameters(learning_task, 0, CHECKED_TYPE))
    with explain_own_errors(model.module, model.module.name):
        outputs = network.compute_training_outputs(x, DEFAULT_RANDOMNESS)
    model.training_loss(learning_task).check_values(outputs, network.as_tensor(y))


def _list_zeros(layout: ParameterLayout, params: Vector) -> Iterator[RangeGradient]:
    zeros = np.zeros_like(params)
    return (
        RangeGradient(vector_range, vector_range.view(zeros))
        for vector_range in reversed(layout.vector_ranges.values())
    )
