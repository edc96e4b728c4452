"""Training loop of Ensayo, and the choice between it and that of PyTorch."""

from typing import Literal, Protocol, TypeAlias

from benchmarks.compute.batches import SEED, FloatType, training_batches
from benchmarks.compute.cases import ComputeCase
from services.learning.datasets import TrainTestData

Side: TypeAlias = Literal["Ensayo", "PyTorch"]
SIDES: tuple[Side, ...] = ("Ensayo", "PyTorch")


class Training(Protocol):
    """Training of a model, step by step."""

    def run_step(self) -> float:
        """Compute the gradient of the next batch, update the parameters, and return the loss before the update."""


class EnsayoTraining:
    """Training of a case with Ensayo."""

    def __init__(self, case: ComputeCase, dtype: FloatType = "float32", data: TrainTestData | None = None) -> None:
        data = data or case.dataset.load(dtype)
        self._case, self._task = case, data.task
        self._batches = training_batches(case, data)
        self.params = case.model.init_parameters(data.task, SEED, dtype)
        self._state = case.optimiser.init_state(self.params)

    def run_step(self) -> float:
        x, y, randomness = next(self._batches)
        loss, gradient = self._case.model.loss_and_grad(self._task, self.params, x, y, randomness)
        self.params, self._state = self._case.optimiser.update_params(self.params, gradient, self._state)
        return loss


def create_training(case: ComputeCase, side: Side, data: TrainTestData | None = None) -> Training:
    """Return the training of a case with Ensayo or with PyTorch; both start with the same parameters.

    `data` is the dataset of the case in fp32, if it has been loaded already.
    PyTorch is imported only where it is used, so that it does not count in the memory of Ensayo.
    """
    if side == "Ensayo":
        return EnsayoTraining(case, data=data)
    from benchmarks.compute.torch_training import TorchTraining  # noqa: PLC0415 - see above

    return TorchTraining(case, data=data)
