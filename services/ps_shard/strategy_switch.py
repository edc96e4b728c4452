"""Server of one shard of the parameter vector in a training run that switches its strategy."""

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.learning.optimisers import OptimiserState
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.update_rules import UpdateRule
from services.ps_shard.runtime import ServerRuntime
from services.runtime.control import CoordinatorClient, ReportStage, StrategySwitchDecision, SwitchStageReport
from services.schema.arrays import HostArray
from services.schema.errors import NetworkError, ProtocolError
from services.strategies import SinglePhaseStrategy
from services.strategies.switching.state_transfer import (
    StrategySwitchTimeout,
    hash_vectors,
    receive_model_vectors,
    send_model_vectors,
)
from services.strategies.switching.switch import TrainingPhaseSwitch, find_shard_sender


@dataclass
class StrategySwitchingServer:
    """Server of one shard of the parameter vector that takes part in a strategy switch during training."""

    node_name: str
    switch: TrainingPhaseSwitch
    updater_after: ParameterUpdater  # of updates after the switch
    server: ServerRuntime
    shard_owners: tuple[str, ...]  # node names by shard
    make_server: Callable[
        [SinglePhaseStrategy, UpdateRule, int, int], ServerRuntime
    ]  # the integers are version and samples
    control: CoordinatorClient
    time_limit: StrategySwitchTimeout
    worker_tasks: Collection[asyncio.Task[Any]] = ()  # training task of the worker in the same process, if there is one
    epoch: int = 0  # of the membership
    loss_announcement_timeout_s: float = 0.0  # virtual; a change of the membership breaks off the switch until then

    async def serve_and_switch_strategy(self) -> None:
        """Serve the workers until every worker has left, through all strategy switches."""
        if await self.serve_first_phase():
            await self._serve_until_strategy_switch(is_committed=True)

    async def serve_first_phase(self) -> bool:
        """Serve the workers until a strategy switch is committed, and return whether one was before the run's end."""
        while await self._serve_until_strategy_switch(is_committed=False):
            if await self._switch_strategy():
                return True
        return False

    async def _serve_until_strategy_switch(self, *, is_committed: bool) -> bool:
        """Serve the workers until a strategy switch or the end of training.

        If the current strategy has no servers, only wait. Return whether a switch follows.
        """
        if (self.switch.second if is_committed else self.switch.first).server_algorithm():
            return await self.server.serve_workers()
        return await self._await_strategy_switch()

    async def _await_strategy_switch(self) -> bool:
        """Wait until the coordinator starts a strategy switch.

        Return false if there will be no switch. There will be no switch when the worker in the same process has
        finished its training.
        """
        switch_task = asyncio.create_task(self.control.await_strategy_switch_start())
        try:
            await asyncio.wait({switch_task, *self.worker_tasks}, return_when=FIRST_COMPLETED)
            return switch_task.done() and switch_task.result()
        finally:
            switch_task.cancel()

    @property
    def _current_optimiser_state(self) -> OptimiserState:
        """State of the optimiser in the update rule of this server.

        Raises `ProtocolError` if the rule has no optimiser state.
        """
        update_rule = self.server.update_rule
        if update_rule.state is None:
            raise ProtocolError(f"update rule {type(update_rule).__name__} has no optimiser state to transfer")
        return update_rule.state

    async def _switch_strategy(self) -> bool:
        """Take part in a strategy switch, and return whether all nodes have committed it."""
        params, state = self.server.update_rule.params, self._current_optimiser_state
        deadline_s = self.time_limit.deadline_from_now_s
        decision = await self.control.report_strategy_switch(self._make_stage_report("stopped", params, state))
        if decision.action == "load":
            decision, params, state = await self._transfer_shard(decision, params, state, deadline_s)
        if decision.action == "abort":
            return False
        self._start_new_server(decision, params, state)
        return True

    def _make_stage_report(
        self, report_stage: ReportStage, shard_params: HostArray, optimiser_state: OptimiserState
    ) -> SwitchStageReport:
        """Return this server's report at one stage of a strategy switch, with the digests of its shard."""
        machine = self.server.machine
        return SwitchStageReport(
            self.node_name,
            report_stage,
            version=machine.version,
            samples=machine.samples,
            updates=optimiser_state.update_count,
            params_digests=(hash_vectors([shard_params]),),
            state_digests=(hash_vectors(optimiser_state.slots, optimiser_state.update_count),),
            is_server=True,
            epoch=self.epoch,
        )

    async def _transfer_shard(
        self, decision: StrategySwitchDecision, params: HostArray, optimiser_state: OptimiserState, deadline_s: float
    ) -> tuple[StrategySwitchDecision, HostArray, OptimiserState]:
        """Receive or send this server's shard in a strategy switch.

        Return the coordinator's next decision, and the shard's parameters and optimiser state.
        """
        try:
            async with self.time_limit.cancel_block_at_deadline(deadline_s):
                if self.switch.model_transfer_plan.receivers == "servers":
                    params, optimiser_state = await self._receive_shard(decision)
                else:
                    await self._send_shard_to_workers(params, optimiser_state)
        except NetworkError as error:
            await self.time_limit.clock.sleep_until(self.time_limit.clock.now() + self.loss_announcement_timeout_s)
            failure_report = SwitchStageReport(
                self.node_name, "loaded", failure=str(error), is_server=True, epoch=self.epoch
            )
            return await self.control.report_strategy_switch(failure_report), params, optimiser_state
        next_decision = await self.control.report_strategy_switch(
            self._make_stage_report("loaded", params, optimiser_state)
        )
        return next_decision, params, optimiser_state

    async def _receive_shard(self, decision: StrategySwitchDecision) -> tuple[HostArray, OptimiserState]:
        """Receive this server's shard from a worker, for a strategy switch.

        Return the parameters and the optimiser's state.
        """
        server = self.server
        slot_count = len(self._current_optimiser_state.slots) if self.switch.model_transfer_plan.includes_slots else 0
        vectors = [np.empty_like(server.update_rule.params) for _ in range(1 + slot_count)]
        sender = find_shard_sender(server.shard_number, self.shard_owners, server.worker_names)
        await receive_model_vectors(server.transport, sender, decision.first_step, vectors)
        return vectors[0], OptimiserState(decision.updates, tuple(vectors[1:]))

    async def _send_shard_to_workers(self, params: HostArray, optimiser_state: OptimiserState) -> None:
        """Send this server's shard to every worker, for a strategy switch.

        The message tags contain the worker's own next step, as do the messages after an abort. If the tags here had a
        later step, the worker would drop those messages as old.
        """
        transfer = self.switch.model_transfer_plan
        slots = optimiser_state.slots if transfer.includes_slots else ()
        vectors = [*([params] if transfer.includes_params else ()), *slots]
        for rank, next_step in self.server.next_steps.items():
            await send_model_vectors(self.server.transport, self.server.worker_names[rank], next_step, vectors)

    def _start_new_server(
        self, decision: StrategySwitchDecision, params: HostArray, optimiser_state: OptimiserState
    ) -> None:
        """Start the server for the strategy after the switch.

        If that strategy has no servers, keep the old server.
        """
        algorithm, workers = self.switch.second.server_algorithm(), len(self.server.worker_names)
        if algorithm is None:
            return
        update_rule = algorithm.make_update_rule(self.updater_after, params, workers)
        update_rule.state = self.switch.optimiser_state_after_switch(
            self.updater_after.optimiser, params, optimiser_state
        )
        self.server = self.make_server(self.switch.second, update_rule, decision.version, decision.samples)
        self.server.next_steps = dict.fromkeys(range(algorithm.count_gradient_workers(workers)), decision.first_step)
