"""Rate, delay, jitter and loss of a link between two regions or nodes.

The name of a distance, such as `metro`, can set the delay.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, Self, TypeAlias

from pydantic import Field

from services.cluster.links.access_link import JITTER_NEEDS_DELAY
from services.cluster.links.impairments import AnyJitter, AnyPacketLoss
from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict
from services.schema.units import Duration, Rate

DistanceName: TypeAlias = Literal["metro", "wan-us-east-west", "wan-eu-us", "wan-eu-asia"]


class LinkProperties(FrozenRecord):
    """Rate, delay, jitter and loss of an additional link between two regions or nodes.

    The link applies in addition to the access links of the nodes.
    """

    link: DistanceName | None = Field(None, description="name of a known distance, which gives the delay")
    rate: Rate | None = Field(None, description="rate in each direction; unlimited when absent")
    delay: Duration | None = Field(None, description="one-way delay, in addition to that of the access links")
    jitter: AnyJitter | None = Field(None, description="variation of the delay")
    loss: AnyPacketLoss | None = Field(None, description="packet loss in each direction")

    @property
    def with_distance_delay(self) -> Self:
        """Copy of these link properties with the delay of the named distance, such as `wan-eu-us`.

        A declared delay stays unchanged.
        """
        if self.link is None:
            return self
        return self.model_copy(update={"link": None, "delay": self.delay or DISTANCE_DELAYS[self.link]})

    def find_field_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a `KeyConflict` for each contradiction or omission in these link properties.

        Jitter needs a delay, and a link must declare a rate, a delay or a loss.
        """
        resolved = self.with_distance_delay
        if resolved.jitter and not resolved.delay:
            yield KeyConflict(("jitter",), JITTER_NEEDS_DELAY)
        if not any((resolved.rate, resolved.delay, resolved.loss)):
            yield KeyConflict((), "changes nothing; declare at least one of link, rate, delay and loss")


# One-way delays: half of a measured round-trip time. A distance has no rate, since rates depend on the rented product.
DISTANCE_DELAYS: Mapping[DistanceName, Duration] = {
    # J. Hamilton, AWS re:Invent 2014, SPOT301: availability zones are less than 2 ms apart, usually less than 1 ms.
    "metro": Duration("0.5ms"),
    # "Azure network round-trip latency statistics", P95 of the 30 days to 30 July 2026:
    "wan-us-east-west": Duration("36ms"),  # West US to East US, 72 ms
    "wan-eu-us": Duration("45ms"),  # East US to West Europe, 89 to 91 ms
    "wan-eu-asia": Duration("90ms"),  # Southeast Asia to West Europe, 181 ms
}
