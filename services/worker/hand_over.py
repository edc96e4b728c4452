"""A worker's part in a switch: it says what it holds, gives or takes what somebody lacks, and goes on."""

import asyncio
from dataclasses import dataclass, replace

import numpy as np

from services.learning.data_order import RankWeights
from services.learning.layout import VectorRange
from services.learning.optimisers import OptimiserState
from services.runtime.control import CoordinatorClient, HandOverDecision, HandOverStage, HandOverState
from services.runtime.transport import Message, MessageKind, MessageTag
from services.schema.arrays import HostArray
from services.schema.errors import NetworkError, first
from services.strategies import StepResult, WorkerAlgorithm
from services.strategies.switching.hand_over import HandOverTimeout, range_digests, receive_vectors, send_vectors
from services.strategies.switching.switch import Switch, shard_sender


@dataclass(frozen=True)
class Model:
    """Parameters and, where every worker has it, the optimiser's state; in host memory."""

    params: HostArray
    kept: OptimiserState | None


@dataclass(frozen=True)
class HandOver:
    """From one strategy to the next, between two steps of a worker."""

    node: str
    switch: Switch
    before: WorkerAlgorithm
    after: WorkerAlgorithm
    shares: RankWeights  # of a batch after the switch, by rank
    control: CoordinatorClient
    limit: HandOverTimeout

    async def run(self, step: int, outcome: StepResult, samples: int) -> tuple[HandOverDecision, StepResult]:
        """How it ended, and what to go on with: after an abort what was given, else what the next strategy begins with.

        Args:
            step: the next one that this worker would do.
            outcome: of the one before.
            samples: in the parameters, as far as this worker knows.
        """
        model = self._model(step, outcome)
        if self.switch.first.server_algorithm():
            context = self.before.context
            for owner in context.shard_owners:
                await context.transport.send(owner, Message(MessageTag(step, MessageKind.HAND_OVER)))
        ends = self.limit.deadline_s
        stopped = replace(self._held("stopped", model), next_step=step, version=step, samples=samples)
        ruling = await self.control.report_hand_over(stopped)
        if ruling.action == "load":
            ruling, model = await self._load(step, ruling, model, ends)
        return ruling, outcome if ruling.action == "abort" else self._begin(ruling, model)

    def _model(self, step: int, outcome: StepResult) -> Model:
        """What this worker holds; the state before the first update is the same wherever it is."""
        device, kept = self.before.context.device, self.before.optimiser_state(outcome.state)
        if kept is None and step == 0:
            kept = self.after.context.optimiser.init(outcome.params)
        if kept is not None:
            kept = OptimiserState(kept.update_count, tuple(device.to_host(slot) for slot in kept.slots))
        return Model(device.to_host(outcome.params), kept)

    def _held(self, told: HandOverStage, model: Model) -> HandOverState:
        """What this worker holds. Before servers have given theirs, parameters of its own are nobody else's."""
        ranges, kept = self._ranges(model), model.kept
        state = () if kept is None else range_digests(ranges, kept.slots, kept.update_count)
        own = told == "stopped" and not self.switch.first.phase_traits().is_synchronous
        params = () if own else range_digests(ranges, [model.params])
        return HandOverState(
            self.node, told, updates=kept.update_count if kept else 0, params_digests=params, state_digests=state
        )

    def _ranges(self, model: Model) -> tuple[VectorRange, ...]:
        return tuple(self.before.context.shards) or (VectorRange(0, model.params.size),)

    async def _load(
        self, step: int, ruling: HandOverDecision, model: Model, ends: float
    ) -> tuple[HandOverDecision, Model]:
        failed: HandOverState | None = None
        try:
            async with self.limit.enforce(ends):
                model = await self._exchange(step, ruling, model)
        except* NetworkError as errors:
            failed = HandOverState(self.node, "loaded", failure=str(first(errors)))
        return await self.control.report_hand_over(failed or self._held("loaded", model)), model

    async def _exchange(self, step: int, ruling: HandOverDecision, model: Model) -> Model:
        """Give servers the ranges that are this rank's to give, or take from all of them."""
        if self.switch.hand_over_transfer.receivers == "servers":
            await self._give(step, model)
            return model
        return await self._take(step, ruling, model)

    async def _give(self, step: int, model: Model) -> None:
        context = self.before.context
        vectors = [
            model.params,
            *(model.kept.slots if model.kept and self.switch.hand_over_transfer.includes_slots else ()),
        ]
        async with asyncio.TaskGroup() as group:
            for shard, (server, kept) in enumerate(zip(context.shard_owners, context.shards, strict=True)):
                if shard_sender(shard, context.shard_owners, context.workers) == self.node:
                    own = [kept.view(vector) for vector in vectors]
                    group.create_task(send_vectors(context.transport, server, step, own))

    async def _take(self, step: int, ruling: HandOverDecision, model: Model) -> Model:
        context, moves, size = self.before.context, self.switch.hand_over_transfer, model.params.size
        count = len(self.after.context.optimiser.init(model.params).slots) if moves.includes_slots else 0
        params = np.empty_like(model.params) if moves.includes_params else model.params
        slots = [np.empty(size, model.params.dtype) for _ in range(count)]
        into = [*([params] if moves.includes_params else ()), *slots]
        async with asyncio.TaskGroup() as group:
            for server, kept in zip(context.shard_owners, context.shards, strict=True):
                own = [kept.view(vector) for vector in into]
                group.create_task(receive_vectors(context.transport, server, step, own))
        return Model(params, OptimiserState(ruling.updates, tuple(slots)) if moves.includes_slots else model.kept)

    def _begin(self, ruling: HandOverDecision, model: Model) -> StepResult:
        """What the strategy after begins with."""
        context = self.after.context
        device = context.device
        kept = self.switch.optimiser_state(
            context.optimiser, model.params, model.kept or OptimiserState(ruling.updates, ())
        )
        kept = OptimiserState(kept.update_count, tuple(device.to_device(slot) for slot in kept.slots))
        params = device.to_device(model.params)
        state = self.after.resume(params, ruling.version, kept)
        return StepResult(params, state, samples=ruling.samples, pending_samples=0)  # everybody has stopped
