"""Access links, each of which connects one node to the network.

A scenario declares an access link key by key or by the name of a link profile.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, Self, TypeAlias

from pydantic import Field, model_validator

from services.cluster.links.impairments import AnyJitter, AnyPacketLoss
from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict, raise_conflicts
from services.schema.units import Bytes, Duration, Rate

LinkProfileName: TypeAlias = Literal["1gbe", "10gbe", "25gbe", "100gbe", "wifi", "4g"]
JITTER_NEEDS_DELAY = f"jitter needs delay; add for example delay: {Duration.example}"


class AccessLinkSettings(FrozenRecord):
    """Access link of a node as a scenario declares it.

    A missing key has its default or, in a worker group, the value of `cluster.worker`.
    """

    link: LinkProfileName | None = Field(None, description="name of a known link; the other keys override its values")
    uplink: Rate | None = Field(None, description="rate at which the node sends; unlimited when absent")
    downlink: Rate | None = Field(None, description="rate at which the node receives; unlimited when absent")
    delay: Duration | None = Field(
        None, description="one-way delay of the link; a message has the delays of its sender's and its receiver's link"
    )
    jitter: AnyJitter | None = Field(None, description="variation of the delay")
    loss: AnyPacketLoss | None = Field(None, description="packet loss on the link, in each direction")
    buffer: Bytes | None = Field(None, description="size of the network's queue towards the node; 512 KiB when absent")


class AccessLink(AccessLinkSettings):
    """Link between one node and the network: rates, delay, jitter, packet loss and buffer size."""

    @model_validator(mode="after")
    def _reject_link_conflicts(self) -> Self:
        raise_conflicts(self.find_field_conflicts())
        return self

    @property
    def with_link_profile_values(self) -> Self:
        """Copy of this access link, completed with the values of its link profile.

        The named link profile supplies all values that are not declared.
        """
        if self.link is None:
            return self
        values = {
            key: value for key, value in LINK_PROFILES[self.link] if value is not None and getattr(self, key) is None
        }
        return self.model_copy(update={"link": None, **values})

    def find_field_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a `KeyConflict` for each contradiction between the keys of this access link."""
        access_link = self.with_link_profile_values
        if access_link.jitter and not access_link.delay:
            yield KeyConflict(("jitter",), JITTER_NEEDS_DELAY)


LINK_PROFILES: Mapping[LinkProfileName, AccessLinkSettings] = {
    # Line rates of IEEE 802.3 (clauses 40, 49, 107, 80). A switch and two network cards add only microseconds, which
    # are left out.
    "1gbe": AccessLinkSettings(uplink=Rate("1gbit"), downlink=Rate("1gbit")),
    "10gbe": AccessLinkSettings(uplink=Rate("10gbit"), downlink=Rate("10gbit")),
    "25gbe": AccessLinkSettings(uplink=Rate("25gbit"), downlink=Rate("25gbit")),
    "100gbe": AccessLinkSettings(uplink=Rate("100gbit"), downlink=Rate("100gbit")),
    # Chrome DevTools' preset "WiFi": 30 Mbit/s down, 15 up, 2 ms round trip.
    "wifi": AccessLinkSettings(uplink=Rate("15mbit"), downlink=Rate("30mbit"), delay=Duration("1ms")),
    # WebPageTest's connection "4G": 9 Mbit/s in both directions, 170 ms round trip to the Internet.
    "4g": AccessLinkSettings(uplink=Rate("9mbit"), downlink=Rate("9mbit"), delay=Duration("85ms")),
}
