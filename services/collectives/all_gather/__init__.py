"""All-gather algorithms, after which every rank has the payloads of all ranks: schedules of transfers between ranks.

`AnyAllGather` lists all of them. The executor of all-reduces runs their schedules.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.collectives.all_gather.base import AllGather
from services.collectives.all_gather.direct import DirectAllGather
from services.collectives.all_gather.ring import RingAllGather
from services.collectives.all_gather.tree import TreeAllGather

AnyAllGather: TypeAlias = Annotated[RingAllGather | TreeAllGather | DirectAllGather, Field(discriminator="kind")]

__all__ = ["AllGather", "AnyAllGather", "DirectAllGather", "RingAllGather", "TreeAllGather"]
