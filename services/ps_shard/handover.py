"""A server's life where strategies switch: it serves, or rests, hands over, and serves or rests again."""

from dataclasses import dataclass

import numpy as np

from services.control import Control, Held, Round, Ruling
from services.device import HostArray
from services.errors import NetworkError
from services.handover import digest, give, take
from services.optimisers import AnyOptimiser, State
from services.ps_shard.loop import Server
from services.ps_shard.machine import Shard
from services.strategies import ParameterServer, Switching
from services.strategies.switching import loader


@dataclass
class Switched:
    """One server and the two strategies that it is part of."""

    node: str
    rank: int
    strategy: Switching
    optimiser: AnyOptimiser  # of an update after the switch
    server: Server
    control: Control

    async def live(self) -> None:
        """Until every worker has left."""
        committed = False
        while await self._comes_to_hand_over(committed=committed):
            committed |= await self._hand_over()

    async def _comes_to_hand_over(self, *, committed: bool) -> bool:
        """Serve; where this strategy has no servers, rest."""
        if self.strategy.parts[committed].server_count:
            return await self.server.serve()
        return await self.control.await_hand_over()

    async def _hand_over(self) -> bool:
        """Whether the strategy after has taken over."""
        params, state = self.server.params, self.server.state
        ruling = await self.control.hand_over(self._held("stopped", params, state))
        if ruling.verb == "load":
            ruling, params, state = await self._load(ruling, params, state)
        if ruling.verb == "abort":
            self.server.resume(self.server.steps)
            return False
        self._begin(ruling, params, state)
        return True

    def _held(self, told: Round, params: HostArray, state: State) -> Held:
        machine = self.server.machine
        return Held(
            self.node,
            told,
            version=machine.version,
            samples=machine.samples,
            updates=state.count,
            params=(digest([params]),),
            state=(digest(state.slots, state.count),),
        )

    async def _load(self, ruling: Ruling, params: HostArray, state: State) -> tuple[Ruling, HostArray, State]:
        try:
            if self.strategy.moves.to == "servers":
                params, state = await self._take(ruling)
            else:
                await self._give(params, state)
        except NetworkError as error:
            return await self.control.hand_over(Held(self.node, "loaded", failure=str(error))), params, state
        return await self.control.hand_over(self._held("loaded", params, state)), params, state

    async def _take(self, ruling: Ruling) -> tuple[HostArray, State]:
        slots = len(self.server.state.slots) if self.strategy.moves.slots else 0
        into = [np.empty_like(self.server.params) for _ in range(1 + slots)]
        workers = self.server.workers
        await take(self.server.transport, workers[loader(self.rank, len(workers))], ruling.step, into)
        return into[0], State(ruling.updates, tuple(into[1:]))

    async def _give(self, params: HostArray, state: State) -> None:
        """To every worker under its own next step: after an abort a later one would make its messages look old."""
        moves = self.strategy.moves
        vectors = [*([params] if moves.params else ()), *(state.slots if moves.slots else ())]
        for rank, step in self.server.steps.items():
            await give(self.server.transport, self.server.workers[rank], step, vectors)

    def _begin(self, ruling: Ruling, params: HostArray, state: State) -> None:
        """Be a server of the strategy after, where it has any; else rest with what is held."""
        after = self.strategy.second
        if not isinstance(after, ParameterServer):
            return
        self.server.params, self.server.state = params, self.strategy.kept(self.optimiser, params, state)
        self.server.optimiser, self.server.compressor = self.optimiser, after.number_format
        workers = len(self.server.workers)
        self.server.machine = Shard(workers, after.synchrony, ruling.version, ruling.samples)
        self.server.resume(dict.fromkeys(range(workers), ruling.step))
