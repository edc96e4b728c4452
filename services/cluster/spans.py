"""What lies between two places: a rate, a delay, a loss? Written out, or by the name of a distance."""

from collections.abc import Iterator, Mapping
from typing import Literal, Self, TypeAlias

from pydantic import Field

from services.cluster.impairments import AnyJitter, AnyLoss
from services.cluster.port import NO_DELAY
from services.schema.component import Record
from services.schema.conflicts import Conflict
from services.schema.units import Duration, Rate

SpanName: TypeAlias = Literal["metro", "wan-us-east-west", "wan-eu-us", "wan-eu-asia"]


class Span(Record):
    """What a link between two places adds to the links of the nodes at its ends."""

    link: SpanName | None = Field(None, description="a named distance, which the other keys may change")
    rate: Rate | None = Field(None, description="in each direction; unlimited beside other limits when absent")
    delay: Duration | None = Field(None, description="one way, beside that of the nodes' links")
    jitter: AnyJitter | None = Field(None, description="how the delay varies")
    loss: AnyLoss | None = Field(None, description="packets lost in each direction")

    @property
    def resolved(self) -> Self:
        """The same without a name: the named distance's delay where none is given."""
        if self.link is None:
            return self
        return self.model_copy(update={"link": None, "delay": self.delay or SPANS[self.link]})

    def span_conflicts(self) -> Iterator[Conflict]:
        """What contradicts itself, or says nothing."""
        span = self.resolved
        if span.jitter and not span.delay:
            yield Conflict(("jitter",), NO_DELAY)
        if not any((span.rate, span.delay, span.loss)):
            yield Conflict((), "changes nothing; write one of link, rate, delay and loss")


# One-way delays: half of a measured round trip. Rates are what somebody rents, so that no name can know them.
SPANS: Mapping[SpanName, Duration] = {
    # J. Hamilton, AWS re:Invent 2014, SPOT301: availability zones are less than 2 ms apart, usually less than 1 ms.
    "metro": Duration("0.5ms"),
    # "Azure network round-trip latency statistics", P95 of the 30 days to 30 July 2026:
    "wan-us-east-west": Duration("36ms"),  # West US to East US, 72 ms
    "wan-eu-us": Duration("45ms"),  # East US to West Europe, 89 to 91 ms
    "wan-eu-asia": Duration("90ms"),  # Southeast Asia to West Europe, 181 ms
}
