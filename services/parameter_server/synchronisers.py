"""May a worker start its next step, or must it wait; how many gradients make one update, and which are too late for it?

Members decide nothing but that, and keep no state: `services.ps_shard.machine` asks them.
"""

import sys
from abc import abstractmethod
from collections.abc import Collection, Sequence
from math import ceil, isinf
from statistics import fmean, pstdev
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from services.schema.component import Component, Record
from services.schema.conflicts import Conflict, refuse


class Synchroniser(Component):
    """A waiting policy, without state."""

    @abstractmethod
    def may_start(self, step: int, slowest: int) -> bool:
        """May a worker start its step number `step` (from 0) when the slowest worker has finished `slowest` steps?"""

    @abstractmethod
    def gathers(self, workers: int) -> int:
        """How many gradients a server averages in one update, when `workers` workers take part."""

    def takes(self, staleness: int) -> bool:  # noqa: ARG002 - most take every gradient
        """Whether a gradient goes into an update although `staleness` others were made since its parameters."""
        return True

    def extra_steps(self, gap: int, own_s: float, next_s: float, slowest_s: float) -> int:  # noqa: ARG002
        """How many steps, this one included, a worker may start although `may_start` says no.

        Args:
            gap: steps between the one that it wants to start and those that the slowest has finished.
            own_s: what its own last step took, without waiting.
            next_s: until the slowest finishes its step, if that takes as long as its last one.
            slowest_s: what that took.
        """
        return 0

    def refusal(self, workers: int) -> str | None:  # noqa: ARG002 - most take any number
        """Why `workers` workers can't be synchronised like this; None when they can."""
        return None

    @property
    def watch(self) -> "Watch | None":
        """By what it tells stragglers; None where it treats all alike."""
        return None

    def gathers_without(self, workers: int, stragglers: int) -> int:  # noqa: ARG002 - most know none
        """The same as `gathers` while so many of the workers are stragglers."""
        return self.gathers(workers)

    @property
    def needs_one_server(self) -> bool:
        """Whether several, each with an order of arrival of its own, could keep workers back for each other."""
        return False

    @property
    def comes_apart(self) -> bool:
        """Whether gradients are updates of their own from the next update of all on, until nobody is a straggler."""
        return False

    def waits_for(self, workers: Collection[int], stragglers: Collection[int]) -> frozenset[int]:  # noqa: ARG002
        """Workers without whose gradients there is no update, however many others have come; most choose nobody."""
        return frozenset()

    @property
    def lockstep(self) -> bool:
        """Whether nobody may be a step ahead of the slowest, so that all hold the same parameters."""
        return False

    @property
    def in_rounds(self) -> bool:
        """Whether gradients of one update come from the same parameters, so that a step is a round of all."""
        return self.lockstep

    @property
    def bounded(self) -> bool:
        """Whether a worker that gets further and further ahead has to wait at some point: the slowest sets the pace."""
        return not self.may_start(sys.maxsize, 0)

    @property
    def answers_after_update(self) -> bool:
        """Whether a worker waits for the update that its gradient goes into."""
        return True


class Bsp(Synchroniser):
    """Bulk synchronous parallel: nobody starts a step before everybody has finished the one before.

    L. G. Valiant, "A bridging model for parallel computation", CACM 33(8), 1990.
    """

    kind: Literal["bsp"] = "bsp"

    def may_start(self, step: int, slowest: int) -> bool:
        return step <= slowest

    def gathers(self, workers: int) -> int:
        return workers

    @property
    def lockstep(self) -> bool:
        return True


class Asp(Synchroniser):
    """Asynchronous parallel: nobody ever waits; staleness has no bound.

    B. Recht et al., "Hogwild!", NeurIPS 2011; J. Dean et al., "Large scale distributed deep networks", NeurIPS 2012.
    """

    kind: Literal["asp"] = "asp"

    def may_start(self, step: int, slowest: int) -> bool:  # noqa: ARG002 - the answer depends on neither
        return True

    def gathers(self, workers: int) -> int:  # noqa: ARG002 - every gradient is an update of its own
        return 1


class Ssp(Synchroniser):
    """Stale synchronous parallel: nobody starts a step more than `staleness` steps ahead of the slowest.

    Q. Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NeurIPS 2013. What
    is bounded is the gap when a step starts; finished steps can be one more apart. A push asks for the newest
    parameters, as in the paper's cache that is always refreshed. 0 is bsp: what can't be stale is averaged.
    """

    kind: Literal["ssp"] = "ssp"
    staleness: NonNegativeInt = Field(description="steps that a worker may be ahead of the slowest when it starts one")

    def may_start(self, step: int, slowest: int) -> bool:
        return step - slowest <= self.staleness

    def gathers(self, workers: int) -> int:
        return workers if self.lockstep else 1

    @property
    def lockstep(self) -> bool:
        return self.staleness == 0


class Dssp(Synchroniser):
    """Dynamic SSP: beyond `low`, a worker gets as many more steps as let it wait least, and never more than `high`.

    X. Zhao et al., "Dynamic stale synchronous parallel distributed training for deep learning", ICDCS 2019. From the
    last durations, the next moments are foretold at which the worker and the slowest one finish a step; the worker
    stops where it waits least for the slowest. We differ: whoever would have to wait is asked about, not the fastest
    alone; it is asked about again whenever somebody pushes; durations are without waiting.
    """

    kind: Literal["dssp"] = "dssp"
    low: NonNegativeInt = Field(description="steps ahead of the slowest that are always allowed")
    high: PositiveInt = Field(description="steps ahead of the slowest that are never exceeded")

    @model_validator(mode="after")
    def _is_a_span(self) -> Self:
        if self.high <= self.low:
            refuse([Conflict(("high",), f"{self.high} must be larger than low, which is {self.low}; equal is ssp")])
        return self

    def may_start(self, step: int, slowest: int) -> bool:
        return step - slowest <= self.low

    def gathers(self, workers: int) -> int:  # noqa: ARG002 - every gradient is an update of its own
        return 1

    def extra_steps(self, gap: int, own_s: float, next_s: float, slowest_s: float) -> int:
        most = self.high - gap + 1
        if most <= 0 or own_s <= 0 or slowest_s <= 0:
            return 0
        return min(range(most + 1), key=lambda steps: _wait_s(steps * own_s, next_s, slowest_s))


def _wait_s(done_s: float, next_s: float, every_s: float) -> float:
    """From `done_s` to the first of the moments next_s, next_s + every_s, … that is not before it."""
    past = (done_s - next_s) / every_s
    if isinf(past):  # moments without a gap between them
        return 0.0
    return max(0.0, next_s + max(0, ceil(past)) * every_s - done_s)


class Backup(Synchroniser):
    """Backup workers: a step ends with the first n - b gradients of it; those that come later are dropped.

    J. Chen et al., "Revisiting distributed synchronous SGD", 2016. Who comes late gets the fresh parameters at once. A
    dropped gradient was computed and is no progress. Every server drops for itself, as accumulators of TensorFlow do.
    """

    kind: Literal["backup"] = "backup"
    backups: NonNegativeInt = Field(description="gradients that a step does not wait for: b")

    def may_start(self, step: int, slowest: int) -> bool:  # noqa: ARG002 - who has an answer may go on
        return True

    def gathers(self, workers: int) -> int:
        return max(1, workers - self.backups)

    def takes(self, staleness: int) -> bool:
        return staleness == 0

    def refusal(self, workers: int) -> str | None:
        if workers == 1 or self.backups < workers:
            return None
        return f"{self.backups} backups of {workers} workers leave nobody to wait for; at most {workers - 1}"

    @property
    def lockstep(self) -> bool:
        return self.backups == 0

    @property
    def in_rounds(self) -> bool:
        return True


class Gba(Synchroniser):
    """Global batch aggregation: nobody waits; an update comes whenever gradients worth a global batch have arrived.

    W. Su et al., "GBA: a tuning-free approach to switch between synchronous and asynchronous training for
    recommendation models", NeurIPS 2022. A worker is answered at once, with parameters that may lack its own gradient.
    We differ: a gradient that is too old is dropped and does not count among those gathered (theirs counts and weighs
    nothing), so that every update is worth as many samples, but for the last ones, when workers have left; ages are in
    updates, not in tokens.
    """

    kind: Literal["gba"] = "gba"
    gather: PositiveInt | None = Field(None, description="gradients of one update: M; as many as workers when absent")
    oldest: NonNegativeInt | None = Field(None, description="updates after which a gradient is dropped; none if absent")

    def may_start(self, step: int, slowest: int) -> bool:  # noqa: ARG002 - nobody waits
        return True

    def gathers(self, workers: int) -> int:
        return self.gather or workers

    def takes(self, staleness: int) -> bool:
        return self.oldest is None or staleness <= self.oldest

    @property
    def answers_after_update(self) -> bool:
        return False


class Watch(Record):
    """Who is a straggler: whose throughput stays below the mean less one standard deviation over all workers.

    Throughput is of computing, over a sliding window of steps. Of n workers fewer than n/2 can be stragglers by this
    rule, so of two none. A margin is ours: among equals somebody is always below, by next to nothing.
    """

    window: PositiveInt = Field(5, description="steps over which throughput is taken")
    windows: PositiveInt = Field(3, description="windows in a row, each a step after the last, that must be slow")
    margin: float = Field(0.05, ge=0, lt=1, description="part of the mean by which a straggler is slower at least")

    def is_slow(self, own: float, all_of_them: Sequence[float]) -> bool:
        """Whether a throughput is too low beside those of all workers, its own among them."""
        mean = fmean(all_of_them)
        return own < min(mean - pstdev(all_of_them, mean), (1 - self.margin) * mean)


class Sparing(Synchroniser):
    """Lockstep that spares itself the wait for stragglers, as long as there are some."""

    stragglers: Watch = Watch()

    def may_start(self, step: int, slowest: int) -> bool:  # noqa: ARG002 - who has an answer may go on
        return True

    def gathers(self, workers: int) -> int:
        return workers

    @property
    def watch(self) -> Watch:
        return self.stragglers

    @property
    def in_rounds(self) -> bool:
        return True


class Elastic(Sparing):
    """Lockstep that does not wait for stragglers: a step ends when those of all others are there.

    S. Li et al., "Sync-Switch", ICDCS 2021, elastic policy. We differ: who is left out goes on computing, its gradient
    counts where it comes in time and is dropped otherwise, and it is waited for again once it is as fast as others. One
    server alone can do that: of several, each would judge for itself whom it does not wait for.
    """

    kind: Literal["elastic"] = "elastic"

    @property
    def needs_one_server(self) -> bool:
        return True

    def gathers_without(self, workers: int, stragglers: int) -> int:
        return max(1, workers - stragglers)

    def waits_for(self, workers: Collection[int], stragglers: Collection[int]) -> frozenset[int]:
        """Not for so many: a healthy worker that comes last would be dropped when a straggler was early."""
        return frozenset(workers).difference(stragglers)

    def takes(self, staleness: int) -> bool:
        return staleness == 0


class Greedy(Sparing):
    """Lockstep that waits for nobody as long as there is a straggler: then every gradient is an update of its own.

    S. Li et al., "Sync-Switch", ICDCS 2021, greedy policy. The first update in lockstep again takes gradients of
    different age. Where there are several servers, the first one decides for all, with its answers: were each to judge
    for itself, one would keep back a worker for the next push of another, whom a second one keeps back for the first.
    Lockstep ends with an update of all, and not in the middle of it.
    """

    kind: Literal["greedy"] = "greedy"

    @property
    def comes_apart(self) -> bool:
        return True


AnySynchroniser: TypeAlias = Annotated[
    Bsp | Asp | Ssp | Dssp | Backup | Gba | Elastic | Greedy, Field(discriminator="kind")
]
