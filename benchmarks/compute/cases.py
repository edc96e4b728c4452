"""Cases of the benchmark of training steps: models with their datasets, batches and optimisers."""

from dataclasses import dataclass

from services.learning.datasets import AnyDataset, Digits
from services.learning.models import LeNet5, LinearModel, Mlp, Model, ResNet
from services.learning.optimisers import Momentum, Optimiser

DIGITS = Digits()
MOMENTUM = Momentum(rate=0.01)


@dataclass(frozen=True)
class ComputeCase:
    """Training of one model, as Ensayo and PyTorch compute it."""

    model: Model
    dataset: AnyDataset = DIGITS
    batch: int = 128
    optimiser: Optimiser = MOMENTUM


CASES: dict[str, ComputeCase] = {
    "linear": ComputeCase(LinearModel()),
    "mlp": ComputeCase(Mlp(hidden=(128, 64))),
    "lenet5": ComputeCase(LeNet5()),
    "resnet8": ComputeCase(ResNet(depth=8)),
    "resnet20": ComputeCase(ResNet(depth=20)),
}
