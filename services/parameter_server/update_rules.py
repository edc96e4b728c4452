"""What does a server do with the vectors that workers have pushed? The mathematics of an update, without a protocol.

Servers and replays of their logs use the same rules. Vectors have the length of a server's range; they lie in host
memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.parameter_server.compensation import AnyCompensation, Memory
from services.parameter_server.staleness import AnyStaleness
from services.schema.arrays import HostArray, Vector


class Contribution(NamedTuple):
    """What one worker has pushed, as far as an update is concerned."""

    worker: int  # rank
    samples: int
    staleness: int  # updates made since the parameters that it comes from
    vector: HostArray
    read: HostArray | None = None  # those parameters, if the rule asks for them


class UpdateRule(ABC):
    """Parameters, and what makes new ones of them; replaced and never changed in place: answers may be on their way."""

    params: HostArray
    state: OptimiserState | None  # of the optimiser; None where the rule has none

    @property
    def needs_what_was_read(self) -> bool:
        """Whether contributions must hold the parameters that they come from: n more copies."""
        return False

    @abstractmethod
    def update(self, contributions: Sequence[Contribution]) -> None:
        """Make one update of them, which are in rank order."""

    @abstractmethod
    def answer(self, worker: int) -> HostArray:
        """What a worker is sent now."""


@dataclass
class GradientRule(UpdateRule):
    """A step of the optimiser with the mean over all samples of the gradients, compensated and weighted by age."""

    params: HostArray
    optimiser: AnyOptimiser
    state: OptimiserState
    staleness: AnyStaleness
    compensation: AnyCompensation
    whole: int | None = None  # gradients that the rate is for, of which fewer use a part; None: any number
    _memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self._memory = self.compensation.init(self.params)

    @property
    def needs_what_was_read(self) -> bool:
        return self.compensation.needs_what_was_read

    def update(self, contributions: Sequence[Contribution]) -> None:
        total = sum(each.samples for each in contributions)
        if not total:
            return
        worth = [each.samples * self.staleness.weight(each.staleness) for each in contributions]
        shares = [each / sum(worth) for each in worth]
        gradient = weighted_sum([self._compensated(each) for each in contributions], shares)
        weight = sum(worth) / total * self._part(len(contributions))
        self.params, self.state = self._scaled(weight).step(self.params, gradient, self.state)

    def answer(self, worker: int) -> HostArray:  # noqa: ARG002 - all get the same
        return self.params

    def _compensated(self, pushed: Contribution) -> HostArray:
        made, self._memory = self.compensation.compensate(pushed.vector, self.params, pushed.read, self._memory)
        gradient: HostArray = made
        return gradient

    def _part(self, gradients: int) -> float:
        """Of the rate, for so many gradients."""
        return 1.0 if self.whole is None else gradients / self.whole

    def _scaled(self, weight: float) -> AnyOptimiser:
        """The optimiser with a part of its rate."""
        return self.optimiser.model_copy(update={"rate": self.optimiser.rate * weight})


@dataclass
class ElasticRule(UpdateRule):
    """The centre of elastic averaging: it moves towards every worker by α of their difference.

    A worker is answered with the centre from which that difference was taken, and makes the same movement itself.
    """

    params: HostArray
    moving_rate: float  # α
    state: OptimiserState | None = None
    _before: dict[int, HostArray] = field(default_factory=dict)  # by worker

    def update(self, contributions: Sequence[Contribution]) -> None:
        centre = self.params
        for each in contributions:
            self._before[each.worker] = centre
            self.params = self.params + pull(self.moving_rate, each.vector, centre)

    def answer(self, worker: int) -> HostArray:
        return self._before[worker]


def pull(moving_rate: float, params: Vector, centre: Vector) -> Vector:
    """By how much a worker and the centre approach each other: α·(x - c), the same bits on both sides."""
    return moving_rate * (params - centre)


def weighted_sum(vectors: Sequence[HostArray], weights: Sequence[float]) -> HostArray:
    """The sum of vectors (n,), each times its weight, formed in the order given."""
    total: HostArray = vectors[0] * vectors[0].dtype.type(weights[0])
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        total += vector * vector.dtype.type(weight)
    return total
