"""Models that a scenario can name.

linear             one dense layer
mlp                dense layers with a nonlinearity between them
lenet5             LeNet-5, a convolutional network
resnet             residual network for small images
bert_mini          encoder that predicts masked tokens
gpt_mini           decoder that predicts the next token
llama_mini_lora    low-rank adapters of a pre-trained decoder
retinanet_mini     RetinaNet with a small residual backbone, for detection
diffusion_mini     denoising diffusion model with a U-Net, for denoising
python             class of the user that computes with NumPy or CuPy, see `own`
torch              module of PyTorch that the user has written, see `own`

`AnyModel` is the registry: each member of this union can be named in a scenario by its `kind`. `base` is the contract.
`network_model` implements it for models that consist of layers.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from services.learning.models.base import Model
from services.learning.models.bert_mini import BertMini
from services.learning.models.diffusion import DiffusionMini
from services.learning.models.gpt_mini import GptMini
from services.learning.models.lenet5 import LeNet5
from services.learning.models.linear import LinearModel
from services.learning.models.llama_mini_lora import LlamaMiniLora
from services.learning.models.mlp import Mlp
from services.learning.models.own.base import UserModel
from services.learning.models.own.python_model import PythonModel
from services.learning.models.own.torch_model import TorchModel
from services.learning.models.resnet import ResNet
from services.learning.models.retinanet_mini import RetinaNetMini
from services.learning.objectives import LossName

AnyModel: TypeAlias = Annotated[
    LinearModel
    | Mlp
    | LeNet5
    | ResNet
    | BertMini
    | GptMini
    | LlamaMiniLora
    | RetinaNetMini
    | DiffusionMini
    | PythonModel
    | TorchModel,
    Field(discriminator="kind"),
]

USER_MODEL_TYPES: tuple[type[UserModel], ...] = (PythonModel, TorchModel)


def model_kinds_for_loss(loss: LossName) -> tuple[str, ...]:
    """Return the kinds of the models that can learn a task with this loss."""
    model_types, _ = get_args(AnyModel)
    return tuple(
        model_type.model_fields["kind"].default
        for model_type in get_args(model_types)
        if loss in model_type.supported_losses
    )


__all__ = [
    "USER_MODEL_TYPES",
    "AnyModel",
    "BertMini",
    "DiffusionMini",
    "GptMini",
    "LeNet5",
    "LinearModel",
    "LlamaMiniLora",
    "Mlp",
    "Model",
    "PythonModel",
    "ResNet",
    "RetinaNetMini",
    "TorchModel",
    "model_kinds_for_loss",
]
