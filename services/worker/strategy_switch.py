"""Strategy switch in a worker.

The worker reports a digest of its model, transfers the model, and starts the second strategy.
"""

import asyncio
from dataclasses import dataclass, replace

import numpy as np

from services.learning.batch_balance.base import BatchShares
from services.learning.layout import VectorRange
from services.learning.optimisers import OptimiserState
from services.runtime.control import CoordinatorClient, ReportStage, StrategySwitchDecision, SwitchStageReport
from services.runtime.transport import Message, MessageKind, MessageTag
from services.schema.arrays import HostArray
from services.schema.errors import NetworkError, first_error_in_group
from services.strategies import StepResult, WorkerAlgorithm
from services.strategies.switching.state_transfer import (
    StrategySwitchTimeout,
    compute_shard_digests,
    receive_model_vectors,
    send_model_vectors,
)
from services.strategies.switching.switch import TrainingPhaseSwitch, find_shard_sender


@dataclass(frozen=True)
class ModelSnapshot:
    """Copy of a worker's parameters and optimiser state in host memory.

    The copy has no optimiser state if servers own that state.
    """

    params: HostArray
    optimiser_state: OptimiserState | None


@dataclass(frozen=True)
class WorkerStrategySwitch:
    """Switch of a worker from the first training strategy to the second.

    The switch happens between two steps.
    """

    node_name: str
    switch: TrainingPhaseSwitch
    algorithm_before: WorkerAlgorithm
    algorithm_after: WorkerAlgorithm
    batch_shares: BatchShares  # of the workers in a batch after the switch, as weights by rank
    control: CoordinatorClient
    time_limit: StrategySwitchTimeout
    epoch: int = 0  # of the membership

    async def switch_training_strategy(
        self, next_step: int, last_step_result: StepResult, samples_trained: int
    ) -> tuple[StrategySwitchDecision, StepResult]:
        """Take part in a strategy switch.

        Return the coordinator's decision, and the parameters to continue with. After an abort these are those of
        `last_step_result`, otherwise those at the start of the second phase.

        Args:
            next_step: the step that this worker would do next.
            last_step_result: result of the step before.
            samples_trained: number of samples used for the parameters, as far as this worker knows.
        """
        snapshot = self._take_model_snapshot(next_step, last_step_result)
        if self.switch.first.server_algorithm():
            context = self.algorithm_before.context
            for owner in context.shard_owners:
                await context.transport.send(owner, Message(MessageTag(next_step, MessageKind.STRATEGY_SWITCH)))
        deadline_s = self.time_limit.deadline_from_now_s
        state = replace(
            self._make_stage_report("stopped", snapshot),
            next_step=next_step,
            version=next_step,
            samples=samples_trained,
        )
        decision = await self.control.report_strategy_switch(state)
        if decision.action == "load":
            decision, snapshot = await self._send_or_receive_model(next_step, decision, snapshot, deadline_s)
        return decision, last_step_result if decision.action == "abort" else self._start_second_phase(
            decision, snapshot
        )

    def _take_model_snapshot(self, next_step: int, step_result: StepResult) -> ModelSnapshot:
        """Return a copy of this worker's parameters and optimiser state.

        The copy has no optimiser state if the servers own that state. Before the first update, the copy includes the
        initial optimiser state even if the servers own it.
        """
        context = self.algorithm_before.context
        device, optimiser_state = context.device, self.algorithm_before.worker_optimiser_state(step_result.state)
        if optimiser_state is None and next_step == 0:
            optimiser_state = self.algorithm_after.context.updater.init_state(step_result.params)
        if optimiser_state is not None:
            host_slots = tuple(device.to_host(slot) for slot in optimiser_state.slots)
            optimiser_state = OptimiserState(optimiser_state.update_count, host_slots)
        return ModelSnapshot(device.to_host(step_result.params), optimiser_state)

    def _make_stage_report(self, report_stage: ReportStage, snapshot: ModelSnapshot) -> SwitchStageReport:
        """Return this worker's report at one stage of a strategy switch.

        The report contains the digests of the worker's model. A worker whose replica differs from those of other
        workers reports no parameters before it has loaded those of the servers.
        """
        ranges, state = self._compute_shard_ranges(snapshot), snapshot.optimiser_state
        slots = () if state is None else compute_shard_digests(ranges, state.slots, state.update_count)
        has_common_params = report_stage != "stopped" or self.switch.first.describe_worker_exchange().has_equal_replicas
        params = compute_shard_digests(ranges, [snapshot.params]) if has_common_params else ()
        updates = state.update_count if state else 0
        return SwitchStageReport(
            self.node_name,
            report_stage,
            updates=updates,
            params_digests=params,
            state_digests=slots,
            epoch=self.epoch,
        )

    def _compute_shard_ranges(self, snapshot: ModelSnapshot) -> tuple[VectorRange, ...]:
        """Return the range of each shard in the parameter vector.

        Without servers, there is one range for the whole vector.
        """
        return tuple(self.algorithm_before.context.shards) or (VectorRange(0, snapshot.params.size),)

    async def _send_or_receive_model(
        self, next_step: int, decision: StrategySwitchDecision, snapshot: ModelSnapshot, deadline_s: float
    ) -> tuple[StrategySwitchDecision, ModelSnapshot]:
        """Send or receive shards of the model, and return the coordinator's next decision.

        The worker reports the outcome of the transfer to the coordinator.
        """
        failure_report: SwitchStageReport | None = None
        try:
            async with self.time_limit.cancel_block_at_deadline(deadline_s):
                snapshot = await self._exchange_model_shards(next_step, decision, snapshot)
        except* NetworkError as errors:
            failure = str(first_error_in_group(errors))
            failure_report = SwitchStageReport(self.node_name, "loaded", failure=failure, epoch=self.epoch)
        return await self.control.report_strategy_switch(
            failure_report or self._make_stage_report("loaded", snapshot)
        ), snapshot

    async def _exchange_model_shards(
        self, next_step: int, decision: StrategySwitchDecision, snapshot: ModelSnapshot
    ) -> ModelSnapshot:
        """Send shards of the model to servers, or receive the shards of all servers.

        Return the model.
        """
        if self.switch.model_transfer_plan.receivers == "servers":
            await self._send_shards_to_new_owners(next_step, snapshot)
            return snapshot
        return await self._receive_model_shards(next_step, decision, snapshot)

    async def _send_shards_to_new_owners(self, next_step: int, snapshot: ModelSnapshot) -> None:
        """Send shards of the model from this worker to their future owners.

        The worker sends only the shards for which it is the sender.
        """
        context, optimiser_state = self.algorithm_before.context, snapshot.optimiser_state
        slots = optimiser_state.slots if optimiser_state and self.switch.model_transfer_plan.includes_slots else ()
        vectors = [snapshot.params, *slots]
        async with asyncio.TaskGroup() as group:
            for number, (owner, shard) in enumerate(zip(context.shard_owners, context.shards, strict=True)):
                if find_shard_sender(number, context.shard_owners, context.workers) == self.node_name:
                    shard_vectors = [shard.view(vector) for vector in vectors]
                    group.create_task(send_model_vectors(context.transport, owner, next_step, shard_vectors))

    async def _receive_model_shards(
        self, next_step: int, decision: StrategySwitchDecision, snapshot: ModelSnapshot
    ) -> ModelSnapshot:
        """Receive the shards of all servers, and return the model that consists of them."""
        context, transfer, size = self.algorithm_before.context, self.switch.model_transfer_plan, snapshot.params.size
        updater = self.algorithm_after.context.updater
        slot_count = len(updater.init_state(snapshot.params).slots) if transfer.includes_slots else 0
        params = np.empty_like(snapshot.params) if transfer.includes_params else snapshot.params
        slots = [np.empty(size, snapshot.params.dtype) for _ in range(slot_count)]
        vectors = [*([params] if transfer.includes_params else ()), *slots]
        async with asyncio.TaskGroup() as group:
            for owner, shard in zip(context.shard_owners, context.shards, strict=True):
                shard_vectors = [shard.view(vector) for vector in vectors]
                group.create_task(receive_model_vectors(context.transport, owner, next_step, shard_vectors))
        received_state = OptimiserState(decision.updates, tuple(slots))
        return ModelSnapshot(params, received_state if transfer.includes_slots else snapshot.optimiser_state)

    def _start_second_phase(self, decision: StrategySwitchDecision, snapshot: ModelSnapshot) -> StepResult:
        """Return the parameters and optimiser state of this worker after a strategy switch.

        The worker continues with the returned values.
        """
        context = self.algorithm_after.context
        device = context.device
        state_before = snapshot.optimiser_state or OptimiserState(decision.updates, ())
        state_after = self.switch.optimiser_state_after_switch(context.updater.optimiser, snapshot.params, state_before)
        device_slots = tuple(device.to_device(slot) for slot in state_after.slots)
        params = device.to_device(snapshot.params)
        state = self.algorithm_after.state_after_switch(
            params, decision.version, OptimiserState(state_after.update_count, device_slots)
        )
        return StepResult(params, state, samples=decision.samples, pending_samples=0)  # all workers have stopped
