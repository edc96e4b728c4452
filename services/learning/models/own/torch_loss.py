"""Loss of training of a module of PyTorch: that of the task, or a function of the user."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from services.learning.models.own.result_checks import MIN_SUM_GROWTH, SAMPLE_COPIES
from services.learning.objectives import LossName
from services.learning.own_code import OwnCodeError, UserCode, explain_own_errors, load_user_object, make_error
from services.learning.own_code.torch_package import TorchInstallation, import_torch

Tensor: TypeAlias = Any  # torch.Tensor: PyTorch is not always installed
LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # outputs and targets -> mean loss, shape ()


@dataclass(frozen=True)
class TrainingLoss:
    """Loss function of training, with the code and the key of the model that its errors name."""

    function: LossFunction
    code: UserCode  # function of the user; with the loss of a task, the module whose outputs it gets
    key: str  # of the model: `loss` or `module`
    name: str  # of the function, for messages

    def compute(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the loss of a training step, from which `backward` can be called.

        Args:
            outputs: of the module, in training.
            targets: of the same samples.

        Raises:
            OwnCodeError: the function raises an error, or returns anything but a tensor of one number with a graph.
        """
        try:
            with explain_own_errors(self.code, self.name, self.key):
                loss = self.function(outputs, targets)
        except OwnCodeError as error:
            raise OwnCodeError(error.key_path, f"{error}; {self._describe_call(outputs, targets)}") from error
        if problem := _find_problem(outputs, loss):
            raise self._make_error(problem, outputs, targets)
        return loss

    def check_values(self, outputs: Any, targets: Tensor) -> None:
        """Check that the loss is finite, and a mean over the samples: workers average it.

        The outputs are computed once, since dropout would change them. Outputs without one row per sample are not
        repeated.

        Raises:
            OwnCodeError: the loss is not finite, or a sum over samples; or as for `compute`.
        """
        loss = float(self.compute(outputs, targets).detach())
        if not _is_tensor(outputs) or outputs.shape[:1] != targets.shape[:1] or not outputs.isfinite().all():
            return
        if not math.isfinite(loss):
            raise self._make_error(f"the loss is {loss} for finite outputs", outputs, targets)
        copies = (each.repeat_interleave(SAMPLE_COPIES, 0) for each in (outputs, targets))
        of_copies = float(self.compute(*copies).detach())
        if abs(of_copies) > MIN_SUM_GROWTH * abs(loss) > 0:
            grows = f"with {SAMPLE_COPIES} copies of each sample, the loss grows from {loss:.6g} to {of_copies:.6g}"
            raise self._make_error(f"{grows}, so it is a sum", outputs, targets)

    def _make_error(self, problem: str, outputs: Any, targets: Tensor) -> OwnCodeError:
        return make_error(self.code, f"{problem}; {self._describe_call(outputs, targets)}", self.key)

    def _describe_call(self, outputs: Any, targets: Tensor) -> str:
        """Return the arguments of the function, and what a function of the user should return."""
        arguments = f"outputs {_describe_tensor(outputs)} and targets {_describe_tensor(targets)}"
        if self.key == "module":
            return f"it gets {arguments}"
        return (
            f"the loss gets {arguments}, and should return the mean loss over the samples: a tensor of shape (), as "
            'the losses of PyTorch do with reduction="mean"'
        )


@cache
def loss_of_user(code: UserCode) -> TrainingLoss:
    """Return a loss function of the user.

    Raises:
        OwnCodeError: it can't be imported.
    """
    return TrainingLoss(load_user_object(code, "loss"), code, "loss", code.name)


@cache
def loss_of_task(module: UserCode, loss_name: LossName, installation: TorchInstallation | None) -> TrainingLoss:
    """Return the loss of a task for the outputs of a module; PyTorch must be installed."""
    functional = import_torch(installation).nn.functional
    losses: dict[str, LossFunction] = {
        "cross_entropy": functional.cross_entropy,
        "mse": functional.mse_loss,
        "next_token": lambda outputs, targets: functional.cross_entropy(outputs.flatten(0, 1), targets.flatten()),
    }
    return TrainingLoss(losses[loss_name], module, "module", f"{module.name}: the loss {loss_name} of the outputs")


def _find_problem(outputs: Any, loss: Any) -> str:
    """Return why a result is not a loss; empty if it is one."""
    if not _is_tensor(loss):
        return f"it returns a {type(loss).__name__}, not a tensor, so PyTorch cannot compute a gradient"
    if loss.numel() != 1:
        return f"it returns a tensor {_describe_tensor(loss)}, not one number"
    if _is_tensor(outputs) and outputs.requires_grad and not loss.requires_grad:
        return "it returns a tensor that is detached from the outputs, so there is no gradient"
    return ""


def _describe_tensor(value: Any) -> str:
    """Return shape and type of a tensor, such as `(4, 10) of float32`; the type of other objects."""
    if not _is_tensor(value):
        return f"of the type {type(value).__name__}"
    return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def _is_tensor(value: Any) -> bool:
    return callable(getattr(value, "backward", None))  # PyTorch is not imported here
