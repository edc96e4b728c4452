"""What is one node's link to the network like? Written out, or by the name of a link that everybody knows."""

from collections.abc import Iterator, Mapping
from typing import Literal, Self, TypeAlias

from pydantic import Field, model_validator

from services.cluster.impairments import AnyJitter, AnyLoss
from services.schema.component import Record
from services.schema.conflicts import Conflict, refuse
from services.schema.units import Bytes, Duration, Rate

ProfileName: TypeAlias = Literal["1gbe", "10gbe", "25gbe", "100gbe", "wifi", "4g"]
NO_DELAY = "there is no delay to vary; write delay beside it"


class PortOverride(Record):
    """A node's link, as far as it is said; a key left out is left to whoever is asked next."""

    link: ProfileName | None = Field(None, description="a named link, which the other keys may change")
    uplink: Rate | None = Field(None, description="rate at which it sends; unshaped when absent")
    downlink: Rate | None = Field(None, description="rate at which it receives; unshaped when absent")
    delay: Duration | None = Field(
        None, description="one-way delay of its link; a message passes the links of its sender and of its receiver"
    )
    jitter: AnyJitter | None = Field(None, description="how the delay varies")
    loss: AnyLoss | None = Field(None, description="packets lost on its link, in each direction")
    buffer: Bytes | None = Field(None, description="what the port towards it may hold; 512 KiB when absent")


class Port(PortOverride):
    """One node's link to the network."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        refuse(self.conflicts())
        return self

    @property
    def resolved(self) -> Self:
        """The same link without a name: the profile's values where nothing else is said."""
        if self.link is None:
            return self
        given = {key: value for key, value in PROFILES[self.link] if value is not None and getattr(self, key) is None}
        return self.model_copy(update={"link": None, **given})

    def conflicts(self) -> Iterator[Conflict]:
        """What contradicts itself."""
        link = self.resolved
        if link.jitter and not link.delay:
            yield Conflict(("jitter",), NO_DELAY)


PROFILES: Mapping[ProfileName, PortOverride] = {
    # Line rates of IEEE 802.3 (clauses 40, 49, 107, 80); a switch and two cards add microseconds, which are left out.
    "1gbe": PortOverride(uplink=Rate("1gbit"), downlink=Rate("1gbit")),
    "10gbe": PortOverride(uplink=Rate("10gbit"), downlink=Rate("10gbit")),
    "25gbe": PortOverride(uplink=Rate("25gbit"), downlink=Rate("25gbit")),
    "100gbe": PortOverride(uplink=Rate("100gbit"), downlink=Rate("100gbit")),
    # Chrome DevTools' preset "WiFi": 30 Mbit/s down, 15 up, 2 ms round trip.
    "wifi": PortOverride(uplink=Rate("15mbit"), downlink=Rate("30mbit"), delay=Duration("1ms")),
    # WebPageTest's connection "4G": 9 Mbit/s in both directions, 170 ms round trip to the Internet.
    "4g": PortOverride(uplink=Rate("9mbit"), downlink=Rate("9mbit"), delay=Duration("85ms")),
}
