"""Cases of the benchmark of training steps: models with their datasets, batches and optimisers."""

from dataclasses import dataclass

from services.learning.datasets import AnyDataset, Digits, Grammar, Scenes
from services.learning.models import (
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
)
from services.learning.optimisers import Adam, Momentum, Optimiser

DIGITS = Digits()
MOMENTUM, ADAM = Momentum(rate=0.01), Adam(rate=0.001)


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
    "bert_mini": ComputeCase(BertMini(), Grammar(objective="masked_token"), 64, ADAM),
    "gpt_mini": ComputeCase(GptMini(), Grammar(), 64, ADAM),
    "llama_mini_lora": ComputeCase(LlamaMiniLora(), Grammar(shift=1), 64, ADAM),
    "retinanet_mini": ComputeCase(RetinaNetMini(), Scenes(), 32, ADAM),
    "diffusion_mini": ComputeCase(DiffusionMini(), Digits(objective="denoising"), 32, ADAM),
}
