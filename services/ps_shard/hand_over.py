"""A server's life where strategies switch: it serves, or rests, hands over, and serves or rests again."""

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.parameter_server.update_rules import UpdateRule
from services.ps_shard.loop import Server
from services.runtime.control import CoordinatorClient, HandOverDecision, HandOverStage, HandOverState
from services.schema.arrays import HostArray
from services.schema.errors import NetworkError, ProtocolError
from services.strategies import PhaseStrategy
from services.strategies.switching.hand_over import HandOverTimeout, receive_vectors, send_vectors, vectors_digest
from services.strategies.switching.switch import Switch, shard_sender


@dataclass
class Switched:
    """One server and the two strategies that it is part of."""

    node: str
    switch: Switch
    optimiser: AnyOptimiser  # of an update after the switch
    server: Server
    holders: tuple[str, ...]  # names of the nodes that hold a shard, by shard
    begin: Callable[[PhaseStrategy, UpdateRule, int, int], Server]  # from a version, when samples are in it
    control: CoordinatorClient
    limit: HandOverTimeout
    beside: Collection[asyncio.Task[None]] = ()  # the life of the worker in the same process, if there is one

    async def live(self) -> None:
        """Until every worker has left."""
        committed = False
        while await self._comes_to_hand_over(committed=committed):
            committed |= await self._hand_over()

    async def _comes_to_hand_over(self, *, committed: bool) -> bool:
        """Serve; where this strategy has no servers, rest."""
        if (self.switch.second if committed else self.switch.first).server_algorithm():
            return await self.server.serve()
        return await self._rest()

    async def _rest(self) -> bool:
        """Until somebody calls: true. False when nobody will any more, as a worker knows of its own process."""
        called = asyncio.create_task(self.control.await_hand_over())
        try:
            await asyncio.wait({called, *self.beside}, return_when=FIRST_COMPLETED)
            return called.done() and called.result()
        finally:
            called.cancel()

    @property
    def _optimiser_state(self) -> OptimiserState:
        """The optimiser's state of the update rule; raises ProtocolError when the rule has none."""
        rule = self.server.rule
        if rule.state is None:
            raise ProtocolError(f"{type(rule).__name__} has no optimiser's state to hand over")
        return rule.state

    async def _hand_over(self) -> bool:
        """Whether the strategy after has taken over."""
        params, state, ends = self.server.rule.params, self._optimiser_state, self.limit.deadline_s
        ruling = await self.control.report_hand_over(self._held("stopped", params, state))
        if ruling.action == "load":
            ruling, params, state = await self._load(ruling, params, state, ends)
        if ruling.action == "abort":
            return False
        self._begin(ruling, params, state)
        return True

    def _held(self, told: HandOverStage, params: HostArray, state: OptimiserState) -> HandOverState:
        machine = self.server.machine
        return HandOverState(
            self.node,
            told,
            version=machine.version,
            samples=machine.samples,
            updates=state.update_count,
            params_digests=(vectors_digest([params]),),
            state_digests=(vectors_digest(state.slots, state.update_count),),
            is_server=True,
        )

    async def _load(
        self, ruling: HandOverDecision, params: HostArray, state: OptimiserState, ends: float
    ) -> tuple[HandOverDecision, HostArray, OptimiserState]:
        try:
            async with self.limit.enforce(ends):
                if self.switch.hand_over_transfer.receivers == "servers":
                    params, state = await self._take(ruling)
                else:
                    await self._give(params, state)
        except NetworkError as error:
            failed = HandOverState(self.node, "loaded", failure=str(error), is_server=True)
            return await self.control.report_hand_over(failed), params, state
        return await self.control.report_hand_over(self._held("loaded", params, state)), params, state

    async def _take(self, ruling: HandOverDecision) -> tuple[HostArray, OptimiserState]:
        slots = len(self._optimiser_state.slots) if self.switch.hand_over_transfer.includes_slots else 0
        into = [np.empty_like(self.server.rule.params) for _ in range(1 + slots)]
        workers = self.server.workers
        await receive_vectors(
            self.server.transport, shard_sender(self.server.number, self.holders, workers), ruling.first_step, into
        )
        return into[0], OptimiserState(ruling.updates, tuple(into[1:]))

    async def _give(self, params: HostArray, state: OptimiserState) -> None:
        """To every worker under its own next step: after an abort a later one would make its messages look old."""
        moves = self.switch.hand_over_transfer
        vectors = [*([params] if moves.includes_params else ()), *(state.slots if moves.includes_slots else ())]
        for rank, step in self.server.steps.items():
            await send_vectors(self.server.transport, self.server.workers[rank], step, vectors)

    def _begin(self, ruling: HandOverDecision, params: HostArray, state: OptimiserState) -> None:
        """Be a server of the strategy after, where it has any; else rest with what is held."""
        algorithm, workers = self.switch.second.server_algorithm(), len(self.server.workers)
        if algorithm is None:
            return
        rule = algorithm.make_update_rule(self.optimiser, params, workers)
        rule.state = self.switch.optimiser_state(self.optimiser, params, state)
        self.server = self.begin(self.switch.second, rule, ruling.version, ruling.samples)
        self.server.steps = dict.fromkeys(range(algorithm.computing_workers(workers)), ruling.first_step)
