"""Random jitter and packet loss of network paths.

Equal seeds give equal delays and losses on all engines.
"""

from abc import abstractmethod
from collections.abc import Iterator
from math import exp, log1p, sqrt
from random import Random
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.schema.component import ScenarioComponent
from services.schema.units import Duration

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
# Below 1: a path that loses every packet makes nodes wait for ever. A partition event cuts paths for a limited time.
LossShare: TypeAlias = Annotated[float, Field(ge=0, lt=1)]


class Jitter(ScenarioComponent):
    """Random variation of the one-way delay of packets."""

    deviation: Duration = Field(description="standard deviation of the one-way delay")

    @abstractmethod
    def iter_one_way_delays_s(self, mean_delay_s: float, rng: Random) -> Iterator[float]:
        """Yield an endless series of random one-way delays in seconds.

        The mean of the delays is `mean_delay_s`. All delays are at least 0.
        """


class NormalJitter(Jitter):
    """Jitter with normally distributed delays.

    Setting negative delays to zero raises a mean of less than 3 standard deviations.
    """

    kind: Literal["normal"] = "normal"

    def iter_one_way_delays_s(self, mean_delay_s: float, rng: Random) -> Iterator[float]:
        while True:
            yield max(0.0, rng.gauss(mean_delay_s, self.deviation))


class LognormalJitter(Jitter):
    """Jitter with lognormally distributed delays, which have a long tail of late packets.

    The distribution is skewed, as on wide-area paths.
    """

    kind: Literal["lognormal"] = "lognormal"

    def iter_one_way_delays_s(self, mean_delay_s: float, rng: Random) -> Iterator[float]:
        variance = log1p((self.deviation / mean_delay_s) ** 2)
        median_s = mean_delay_s * exp(-variance / 2)
        while True:
            yield median_s * rng.lognormvariate(0.0, sqrt(variance))


AnyJitter: TypeAlias = Annotated[NormalJitter | LognormalJitter, Field(discriminator="kind")]


class PacketLoss(ScenarioComponent):
    """Random loss of packets on a network path."""

    @property
    @abstractmethod
    def lost_packet_share(self) -> float:
        """Mean share of packets that are lost, in [0, 1]."""

    @abstractmethod
    def iter_packet_losses(self, rng: Random) -> Iterator[bool]:
        """Yield for each packet of an endless series whether the packet is lost."""


class IndependentPacketLoss(PacketLoss):
    """Independent losses: every packet is lost with the same probability."""

    kind: Literal["independent"] = "independent"
    share: LossShare = Field(description="share of packets that are lost, such as 0.01")

    @property
    def lost_packet_share(self) -> float:
        return self.share

    def iter_packet_losses(self, rng: Random) -> Iterator[bool]:
        while True:
            yield rng.random() < self.share


class GilbertElliottPacketLoss(PacketLoss):
    """Packet losses in bursts, drawn from a Markov chain with a good and a bad state.

    E. N. Gilbert, Bell System Technical Journal 39(5), 1960; E. O. Elliott, ibid. 42(5), 1963.
    """

    kind: Literal["gilbert_elliott"] = "gilbert_elliott"
    to_bad: Annotated[float, Field(gt=0, le=1)] = Field(
        description="probability per packet of a change from the good to the bad state"
    )
    to_good: Annotated[float, Field(gt=0, le=1)] = Field(
        description="probability per packet of a change from the bad to the good state"
    )
    share_bad: Share = Field(1.0, description="share of packets that are lost in the bad state")
    share_good: LossShare = Field(0.0, description="share of packets that are lost in the good state")

    @property
    def lost_packet_share(self) -> float:
        bad_share = self.to_bad / (self.to_bad + self.to_good)
        return bad_share * self.share_bad + (1 - bad_share) * self.share_good

    def iter_packet_losses(self, rng: Random) -> Iterator[bool]:
        is_bad = False
        while True:
            is_bad = rng.random() < (1 - self.to_good if is_bad else self.to_bad)
            yield rng.random() < (self.share_bad if is_bad else self.share_good)


AnyPacketLoss: TypeAlias = Annotated[IndependentPacketLoss | GilbertElliottPacketLoss, Field(discriminator="kind")]
