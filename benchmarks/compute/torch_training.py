"""Training loop of PyTorch, with the parameters, batches and optimisers of Ensayo. Only PyTorch's side imports it."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from benchmarks.compute.batches import SEED, FloatType, training_batches
from benchmarks.compute.cases import ComputeCase
from benchmarks.compute.torch_detection import detection_loss
from services.learning.datasets import LearningTask, TrainTestData
from services.learning.layout import ParameterLayout
from services.learning.models import Model
from services.learning.objectives import LossName
from services.learning.optimisers import Optimiser
from services.learning.tokens import IGNORED_TARGET
from services.schema.arrays import HostArray, Vector


def token_cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy over all positions that count; scores have the shape (B, T, vocabulary)."""
    return cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=IGNORED_TARGET)


LOSSES: Mapping[LossName, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": cross_entropy,
    "mse": mse_loss,
    "next_token": token_cross_entropy,
    "masked_token": token_cross_entropy,
    "detection": detection_loss,
    "denoising": mse_loss,
}

ADAM_TYPES: Mapping[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class TorchTraining:
    """Training of a case with PyTorch, in eager mode."""

    def __init__(self, case: ComputeCase, dtype: FloatType = "float32", data: TrainTestData | None = None) -> None:
        data = data or case.dataset.load(dtype)
        self._case, self._task = case, data.task
        self._batches = training_batches(case, data)
        self.module = build_counterpart(case.model, data.task).to(getattr(torch, dtype))
        params = case.model.init_parameters(data.task, SEED, dtype)
        load_parameters(self.module, case.model.parameter_layout(data.task), params)
        self.optimiser = create_torch_optimiser(case.optimiser, self.module)
        self._compute_loss = LOSSES[data.task.loss]

    def run_step(self) -> float:
        inputs, targets = self._case.model.draw_inputs_and_targets(self._task, *next(self._batches))
        self.optimiser.zero_grad(set_to_none=True)
        loss = self._compute_loss(self.module(torch.from_numpy(inputs)), torch.from_numpy(targets))
        loss.backward()
        self.optimiser.step()
        value: float = loss.item()
        return value


def build_counterpart(model: Model, learning_task: LearningTask) -> nn.Module:
    """Return a model in PyTorch, whose parameters have the order of Ensayo's layout."""
    module: nn.Module = import_module(f"benchmarks.compute.torch_models.{model.kind}").build_module(
        model, learning_task
    )
    return module


def load_parameters(module: nn.Module, layout: ParameterLayout, params: Vector) -> None:
    """Copy a parameter vector of Ensayo into a module."""
    arrays = layout.unpack(params)
    for (name, _), (parameter, is_transposed) in zip(layout.arrays, _parameters(module), strict=True):
        values = torch.tensor(arrays[name])
        parameter.data = values.T.contiguous() if is_transposed else values


def flatten_gradients(module: nn.Module) -> HostArray:
    """Return the gradients of a module in one vector, in the layout of Ensayo."""
    gradients = [p.grad.T if is_transposed else p.grad for p, is_transposed in _parameters(module)]
    vector: HostArray = torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()
    return vector


def _parameters(module: nn.Module) -> Iterator[tuple[Any, bool]]:
    """Yield the trained parameters of a module, and whether Ensayo stores them transposed: (inputs, outputs)."""
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        owner = module.get_submodule(name.rpartition(".")[0])
        yield parameter, isinstance(owner, nn.Linear) and parameter.ndim > 1


def create_torch_optimiser(optimiser: Optimiser, module: nn.Module) -> torch.optim.Optimizer:
    """Return PyTorch's optimiser with the update rule of `optimiser`.

    Raises:
        ValueError: PyTorch has no optimiser of this kind.
    """
    fields = optimiser.model_dump(exclude={"kind"})
    common = {"params": module.parameters(), "lr": fields.pop("rate"), "weight_decay": fields.pop("weight_decay")}
    if optimiser.kind in ADAM_TYPES:
        betas = (fields["beta1"], fields["beta2"])
        return ADAM_TYPES[optimiser.kind](**common, betas=betas, eps=fields["epsilon"])
    if optimiser.kind in ("sgd", "momentum"):
        return torch.optim.SGD(**common, **fields)
    known = ", ".join(("sgd", "momentum", *ADAM_TYPES))
    raise ValueError(f"PyTorch has no optimiser {optimiser.kind}; cases of the benchmark may use {known}")
