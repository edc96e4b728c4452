"""What is trained?

linear    one dense layer
mlp       dense layers with a nonlinearity between them
lenet5    the convolutional classic

`AnyModel` is the registry: a member of this union can stand in a scenario under its `kind`.
`base` is the contract, `sequential` fulfils it for chains of `layers` with one of the `losses` at the end.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.learning.models.base import Model
from services.learning.models.lenet5 import LeNet5
from services.learning.models.linear import Linear
from services.learning.models.mlp import Mlp

AnyModel: TypeAlias = Annotated[Linear | Mlp | LeNet5, Field(discriminator="kind")]

__all__ = ["AnyModel", "LeNet5", "Linear", "Mlp", "Model"]
