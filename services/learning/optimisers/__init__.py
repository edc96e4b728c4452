"""Optimisers: rules that update the parameters of a model with a gradient.

sgd        stochastic gradient descent
momentum   the same with momentum, also in Nesterov's form
adam       running means of gradients and of their squares
adamw      adam with decoupled weight decay
lamb       adamw with one trust ratio per array of the model
lars       momentum with one local learning rate per array of the model

`AnyOptimiser` is the registry: a scenario may name each member of this union by its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.learning.optimisers.adam import Adam
from services.learning.optimisers.adamw import AdamW
from services.learning.optimisers.base import Optimiser, OptimiserState
from services.learning.optimisers.lamb import Lamb
from services.learning.optimisers.lars import Lars
from services.learning.optimisers.momentum import Momentum
from services.learning.optimisers.sgd import Sgd

AnyOptimiser: TypeAlias = Annotated[Sgd | Momentum | Adam | AdamW | Lamb | Lars, Field(discriminator="kind")]

__all__ = ["Adam", "AdamW", "AnyOptimiser", "Lamb", "Lars", "Momentum", "Optimiser", "OptimiserState", "Sgd"]
