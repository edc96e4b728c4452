"""What do all strategies have in common that give way to another one during a run?

Two strategies, a rule that says when, and what becomes of the learning rate and of the optimiser's state. The switch
happens in place: nobody restarts, no gradient is lost or counted twice. Until it is committed a run is the first
strategy's in everything that is said of it; what comes after stands beside it (`after`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from sys import maxsize
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

from services.collectives import Schedule, Site
from services.compressors import Compressor
from services.learning.layout import Range
from services.learning.optimisers import AnyOptimiser
from services.learning.optimisers import State as Kept
from services.parameter_server.placement import Dedicated
from services.parameter_server.update_rules import GradientRule
from services.runtime.run_log import Phases
from services.schema.arrays import HostArray, Vector, namespace
from services.schema.errors import ProtocolError
from services.strategies.all_reduce import AllReduce
from services.strategies.base import Cost, Gradient, Outcome, Peer, Predicted, Sent, State, Strategy
from services.strategies.parameter_server import ParameterServer
from services.strategies.switch_rules import SwitchRule

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
    def switch_rule(self) -> SwitchRule:
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
    def served(self) -> ParameterServer | None:
        """The first of them that has servers; both have the same, or one has none."""
        return next((part for part in self.parts if isinstance(part, ParameterServer)), None)

    @property
    def server_count(self) -> int:
        return self.served.server_count if self.served else 0

    def holders(self, workers: Sequence[str], servers: Sequence[str]) -> tuple[str, ...]:
        return self.served.holders(workers, servers) if self.served else ()

    def shards(self, workers: int, entries: int) -> tuple[Range, ...]:
        return self.served.shards(workers, entries) if self.served else ()

    def update_rule(self, optimiser: AnyOptimiser, params: HostArray, workers: int) -> GradientRule:
        """Of the first part that has servers: until the switch others of the second rest with what they hold.

        Raises:
            ProtocolError: neither part has any.
        """
        if self.served is None:
            raise ProtocolError(f"{self.kind} has no servers")
        return self.served.update_rule(optimiser, params, workers)

    def gathers(self, workers: int) -> int:
        return self.first.gathers(workers)

    def shares_after(self, workers: int) -> tuple[int, ...]:
        """Of a batch after the switch, by rank, as weights: who is promoted computes no more."""
        computing = self.second.computing(workers)
        return (1,) * computing + (0,) * (workers - computing)

    def refusal(self, workers: int) -> str | None:
        if self.first == self.second:
            return "before and after are the same; there is nothing to switch"
        refusals = (self.first.refusal(workers), self._refusal_after(workers), self._moves_shards(workers))
        return next((reason for reason in refusals if reason), self._counts_apart(workers))

    def _refusal_after(self, workers: int) -> str | None:
        """Its own rate is not asked: a switch says what becomes of the rate."""
        if not isinstance(self.second, ParameterServer):
            return self.second.refusal(workers)
        whole = self.second.model_copy(update={"rate": "as_given", "placement": Dedicated()})
        placed = self.second.placement.refusal_after(workers, self.second.servers)
        return placed or self.second.refusal_of_servers(workers) or whole.refusal(self.second.computing(workers))

    def _moves_shards(self, workers: int) -> str | None:
        """Why two strategies with servers are not of the same ones."""
        first, second = self.parts
        if not (isinstance(first, ParameterServer) and isinstance(second, ParameterServer)):
            return None
        if first.servers != second.servers:
            return (
                f"before has {first.servers} servers and after has {second.servers}; "
                "a switch keeps the nodes that there are"
            )
        if first.placement.shares(workers, first.servers) != second.placement.shares(workers, second.servers):
            return (
                f"before has placement {first.placement.kind} and after has {second.placement.kind}; "
                "a switch leaves every range where it is"
            )
        return None

    def _counts_apart(self, workers: int) -> str | None:
        """Why several servers may not have made the same updates when workers stop, so that they are no one model."""
        first = self.first
        if not isinstance(first, ParameterServer) or first.synchronous or len(first.shards(workers, entries=1)) == 1:
            return None
        drops = not (first.synchrony.takes(maxsize) and first.staleness.takes(maxsize))
        if first.gathers(workers) == 1 and not drops:
            return None
        what = "drop late gradients" if drops else "choose what an update is made of"
        return (
            f"before has servers that {what}, each by itself, and can't hand over one model; "
            "one of its own can (servers: 1)"
        )

    def optimiser(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:
        return self.first.optimiser(given, workers)

    def optimiser_after(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:
        """The optimiser of one update after the switch."""
        first = self.optimiser(given, workers)
        return first.model_copy(update={"rate": first.rate * self.factor(workers)})

    def schedule(self, workers: int) -> Schedule:
        return self.first.schedule(workers)

    def choices(self, site: Site, cost: Cost) -> dict[str, float]:
        """Of the part that leaves something to choose; where both do, their names say which is meant."""
        first, second = self.first.choices(site, cost), self.second.choices(site, cost)
        if not first or not second:
            return first or second
        return {f"{name} before": taken for name, taken in first.items()} | {
            f"{name} after": taken for name, taken in second.items()
        }

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        return self.sent(self.first, workers, entries, dtype)

    def sent(self, part: Strategy, workers: int, entries: int, dtype: str) -> Sent:
        """Payload bytes of one step under one of the parts; the other's servers rest."""
        sent = part.bytes_per_step(workers, entries, dtype)
        return sent if sent.servers else replace(sent, servers=(0,) * self.server_count)

    def predict(self, cost: Cost) -> Predicted:
        return self.first.predict(cost)

    @property
    def moves(self) -> Moves:
        """What has to travel; what a node holds already is not sent again."""
        carries = self.state_policy == "carry"
        from_servers, to_servers = (isinstance(part, ParameterServer) for part in self.parts)
        if to_servers and not from_servers:
            return Moves("servers", params=True, slots=carries)
        if not from_servers:
            return Moves("nobody", params=False, slots=False)
        moves = Moves("workers", not self.first.synchronous, carries and not to_servers)
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
        moves, nodes = self.moves, [f"{number}" for number in range(workers + self.server_count)]
        holders = self.holders(nodes[:workers], nodes[workers:])
        sent = dict.fromkeys(nodes, 0)
        for number, (holder, shard) in enumerate(zip(holders, shards, strict=True)):
            size_bytes = shard.size * np.dtype(dtype).itemsize * (moves.params + slots * moves.slots)
            if moves.to == "workers":
                sent[holder] += size_bytes * sum(worker != holder for worker in nodes[:workers])
            if moves.to == "servers" and (giver := loader(number, holders, nodes[:workers])) != holder:
                sent[giver] += size_bytes
        return Sent(workers=tuple(sent.values())[:workers], servers=tuple(sent.values())[workers:])

    def partners(self, peer: Peer) -> tuple[str, ...]:
        return self.first.partners(peer)

    def init(self, peer: Peer, params: Vector) -> State:
        return self.first.init(peer, params)

    async def step(
        self, peer: Peer, step: int, params: Vector, gradient: Gradient, state: State, phases: Phases
    ) -> Outcome:
        return await self.first.step(peer, step, params, gradient, state, phases)

    async def finish(self, peer: Peer, step: int, outcome: Outcome, phases: Phases) -> None:
        await self.first.finish(peer, step, outcome, phases)

    async def leave(self, peer: Peer, step: int) -> None:
        await self.first.leave(peer, step)


def loader(shard: int, holders: Sequence[str], workers: Sequence[str]) -> str:
    """The worker that loads a server with its range: itself if it is one; else the work is dealt round.

    Args:
        shard: its number.
        holders: names of all servers, by shard.
        workers: names by rank; their replicas are equal.
    """
    return holders[shard] if holders[shard] in workers else workers[shard % len(workers)]
