"""Load balancing: how many samples of a batch each worker processes.

uniform        equal shares
proportional   shares in proportion to declared speeds, or to given weights
dynamic        shares in proportion to measured speeds, changed during training

`AnyBatchBalance` is the registry: each member of this union can be named in a scenario by its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.learning.batch_balance.base import BatchBalance
from services.learning.batch_balance.dynamic import DynamicBalance
from services.learning.batch_balance.proportional import ProportionalBalance
from services.learning.batch_balance.uniform import UniformBalance

AnyBatchBalance: TypeAlias = Annotated[
    UniformBalance | ProportionalBalance | DynamicBalance, Field(discriminator="kind")
]

__all__ = ["AnyBatchBalance", "BatchBalance", "DynamicBalance", "ProportionalBalance", "UniformBalance"]
