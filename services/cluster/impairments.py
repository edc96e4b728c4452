"""How does a path vary, and how does it lose packets? Seeded laws, the same on every engine that can enforce them."""

from abc import abstractmethod
from collections.abc import Iterator
from math import exp, log1p, sqrt
from random import Random
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.schema.component import Component
from services.schema.units import Duration

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
LostShare: TypeAlias = Annotated[float, Field(ge=0, lt=1)]  # who loses everything waits for ever; see partition


class Jitter(Component):
    """By how much a packet's delay differs from the declared one."""

    deviation: Duration = Field(description="standard deviation of the one-way delay")

    @abstractmethod
    def delays(self, mean_s: float, random: Random) -> Iterator[float]:
        """Delays with this mean and deviation, without end; seconds, never negative."""


class NormalJitter(Jitter):
    """Symmetric around the delay; what would be negative is zero, so a mean of three deviations is kept."""

    kind: Literal["normal"] = "normal"

    def delays(self, mean_s: float, random: Random) -> Iterator[float]:
        while True:
            yield max(0.0, random.gauss(mean_s, self.deviation))


class LognormalJitter(Jitter):
    """Skewed, with a long tail of late packets, as on wide-area paths."""

    kind: Literal["lognormal"] = "lognormal"

    def delays(self, mean_s: float, random: Random) -> Iterator[float]:
        variance = log1p((self.deviation / mean_s) ** 2)
        centre = mean_s * exp(-variance / 2)
        while True:
            yield centre * random.lognormvariate(0.0, sqrt(variance))


AnyJitter: TypeAlias = Annotated[NormalJitter | LognormalJitter, Field(discriminator="kind")]


class Loss(Component):
    """Which packets are lost."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Share of packets lost in the long run."""

    @abstractmethod
    def losses(self, random: Random) -> Iterator[bool]:
        """Whether the next packet is lost, without end."""


class IndependentLoss(Loss):
    """Every packet has the same chance."""

    kind: Literal["independent"] = "independent"
    share: LostShare = Field(description="of packets lost, such as 0.01")

    @property
    def mean(self) -> float:
        return self.share

    def losses(self, random: Random) -> Iterator[bool]:
        while True:
            yield random.random() < self.share


class GilbertElliottLoss(Loss):
    """Losses come in bursts: a Markov chain of a good and a bad state.

    E. N. Gilbert, Bell System Technical Journal 39(5), 1960; E. O. Elliott, ibid. 42(5), 1963.
    """

    kind: Literal["gilbert_elliott"] = "gilbert_elliott"
    to_bad: Annotated[float, Field(gt=0, le=1)] = Field(description="chance per packet to go from good to bad")
    to_good: Annotated[float, Field(gt=0, le=1)] = Field(description="chance per packet to go back")
    share_bad: Share = Field(1.0, description="of packets lost in the bad state")
    share_good: LostShare = Field(0.0, description="of packets lost in the good state")

    @property
    def mean(self) -> float:
        bad = self.to_bad / (self.to_bad + self.to_good)
        return bad * self.share_bad + (1 - bad) * self.share_good

    def losses(self, random: Random) -> Iterator[bool]:
        bad = False
        while True:
            bad = random.random() < (1 - self.to_good if bad else self.to_bad)
            yield random.random() < (self.share_bad if bad else self.share_good)


AnyLoss: TypeAlias = Annotated[IndependentLoss | GilbertElliottLoss, Field(discriminator="kind")]
