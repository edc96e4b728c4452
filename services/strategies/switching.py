"""What do all strategies have in common that give way to another one during a run?

Two strategies, a rule that says when, and what becomes of the learning rate and of the optimiser's state. The switch
happens in place: nobody restarts, no sample is lost or seen twice. Until it is committed a run is the first strategy's
in everything that is said of it; what comes after stands beside it (`after`).
"""

from abc import ABC, abstractmethod
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

from services.collectives import Route
from services.compressors import Compressor
from services.device import Vector, namespace
from services.layout import Range
from services.optimisers import AnyOptimiser
from services.optimisers import State as Kept
from services.rules import Rule
from services.runlog import Phases
from services.strategies.all_reduce import AllReduce
from services.strategies.base import Cost, Gradient, Outcome, Peer, Predicted, Sent, State, Strategy
from services.strategies.parameter_server import ParameterServer

Part: TypeAlias = Annotated[AllReduce | ParameterServer, Field(discriminator="kind")]
StatePolicy: TypeAlias = Literal["carry", "zero", "reset"]


class Moves(NamedTuple):
    """What travels between nodes in a hand-over."""

    to: Literal["servers", "workers", "nobody"]
    params: bool
    slots: bool  # of the optimiser's state


class Switching(Strategy, ABC):
    """One strategy first, another one from a step on that a rule names."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, Part]:
        """Before and after."""

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """When to switch."""

    @property
    @abstractmethod
    def state_policy(self) -> StatePolicy:
        """What becomes of the optimiser's state."""

    @abstractmethod
    def factor(self, workers: int) -> float:
        """What the learning rate is multiplied by."""

    @property
    def first(self) -> Part:
        """The strategy of the beginning."""
        return self.parts[0]

    @property
    def second(self) -> Part:
        """The strategy from the switch on."""
        return self.parts[1]

    @property
    def synchronous(self) -> bool:
        return self.first.synchronous

    @property
    def number_format(self) -> Compressor:
        return self.first.number_format

    @property
    def server_count(self) -> int:
        return max(part.server_count for part in self.parts)

    def gathers(self, workers: int) -> int:
        return self.first.gathers(workers)

    def refusal(self, workers: int) -> str | None:
        if self.first == self.second:
            return "before and after are the same; there is nothing to switch"
        counts = [part.server_count for part in self.parts if part.server_count]
        if len(set(counts)) > 1:
            return f"before has {counts[0]} servers and after has {counts[1]}; a switch keeps the nodes that there are"
        refusals = (part.refusal(workers) for part in self.parts)
        return next((reason for reason in refusals if reason), None)

    def optimiser(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:
        return self.first.optimiser(given, workers)

    def optimiser_after(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:
        """The optimiser of one update after the switch."""
        first = self.optimiser(given, workers)
        return first.model_copy(update={"rate": first.rate * self.factor(workers)})

    def routes(self, workers: int) -> tuple[Route, ...]:
        return self.first.routes(workers)

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        return self.sent(self.first, workers, entries, dtype)

    def sent(self, part: Strategy, workers: int, entries: int, dtype: str) -> Sent:
        """Payload bytes of one step under one of the parts; the other's servers rest."""
        sent = part.bytes_per_step(workers, entries, dtype)
        return sent if sent.servers else Sent(workers=sent.workers, servers=(0,) * self.server_count)

    def predict(self, cost: Cost) -> Predicted:
        return self.first.predict(cost)

    @property
    def moves(self) -> Moves:
        """What has to travel; what a node holds already is not sent again."""
        carries = self.state_policy == "carry"
        if self.second.server_count and not self.first.server_count:
            return Moves("servers", params=True, slots=carries)
        if not self.first.server_count:
            return Moves("nobody", params=False, slots=False)
        moves = Moves("workers", not self.first.synchronous, carries and not self.second.server_count)
        return moves if moves.params or moves.slots else Moves("nobody", params=False, slots=False)

    def kept(self, optimiser: AnyOptimiser, params: Vector, state: Kept) -> Kept:
        """The optimiser's state after the switch.

        carry: as it was. zero: its vectors are zero, its count of updates goes on (Adam's correction of its start is
        over). reset: as before the first update.
        """
        if self.state_policy == "carry":
            return state
        if self.state_policy == "reset":
            return optimiser.init(params)
        return Kept(state.count, tuple(namespace(params).zeros_like(slot) for slot in optimiser.init(params).slots))

    def hand_over_bytes(self, workers: int, shards: tuple[Range, ...], slots: int, dtype: str) -> Sent:
        """Payload bytes of a hand-over in which everything that may have to travel does."""
        moves, itemsize = self.moves, np.dtype(dtype).itemsize
        vectors = moves.params + slots * moves.slots
        sizes = [shard.size * itemsize * vectors for shard in shards]
        if moves.to == "workers":
            return Sent(workers=(0,) * workers, servers=tuple(workers * size for size in sizes))
        if moves.to == "nobody":
            return Sent(workers=(0,) * workers, servers=(0,) * self.server_count)
        by_rank = [sum(sizes[loader::workers]) for loader in range(workers)]
        return Sent(workers=tuple(by_rank), servers=(0,) * len(sizes))

    def partners(self, peer: Peer) -> tuple[str, ...]:
        return self.first.partners(peer)

    def init(self, peer: Peer, params: Vector) -> State:
        return self.first.init(peer, params)

    async def step(
        self, peer: Peer, step: int, params: Vector, gradient: Gradient, state: State, phases: Phases
    ) -> Outcome:
        return await self.first.step(peer, step, params, gradient, state, phases)

    async def leave(self, peer: Peer, step: int) -> None:
        await self.first.leave(peer, step)


def loader(shard: int, workers: int) -> int:
    """The rank that loads a server with its range: replicas are equal, so the work is dealt round."""
    return shard % workers
