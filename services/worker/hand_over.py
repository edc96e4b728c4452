"""A worker's part in a switch: it says what it holds, gives or takes what somebody lacks, and goes on."""

import asyncio
from dataclasses import dataclass, replace

import numpy as np

from services.learning.data_order import Weights
from services.learning.layout import Range
from services.learning.optimisers import State as Kept
from services.runtime.control import Control, Held, Round, Ruling
from services.runtime.transport import Message, Stage, Tag
from services.schema.arrays import HostArray
from services.schema.errors import NetworkError, first
from services.strategies import Outcome, Peer, ServedStrategy, Switching
from services.strategies.hand_over import HandOverLimit, digests, give, take
from services.strategies.switching import loader


@dataclass(frozen=True)
class Model:
    """Parameters and, where every worker has it, the optimiser's state; in host memory."""

    params: HostArray
    kept: Kept | None


@dataclass(frozen=True)
class HandOver:
    """From one strategy to the next, between two steps of a worker."""

    node: str
    strategy: Switching
    before: Peer
    after: Peer
    shares: Weights  # of a batch after the switch, by rank
    control: Control
    limit: HandOverLimit

    async def run(self, step: int, outcome: Outcome, samples: int) -> tuple[Ruling, Outcome]:
        """How it ended, and what to go on with: after an abort what was given, else what the next strategy begins with.

        Args:
            step: the next one that this worker would do.
            outcome: of the one before.
            samples: in the parameters, as far as this worker knows.
        """
        model = self._model(step, outcome)
        if isinstance(self.strategy.first, ServedStrategy):
            for server in self.before.servers:
                await self.before.transport.send(server, Message(Tag(step, Stage.HAND_OVER)))
        ends = self.limit.ends
        stopped = replace(self._held("stopped", model), step=step, version=step, samples=samples)
        ruling = await self.control.hand_over(stopped)
        if ruling.verb == "load":
            ruling, model = await self._load(step, ruling, model, ends)
        return ruling, outcome if ruling.verb == "abort" else self._begin(ruling, model)

    def _model(self, step: int, outcome: Outcome) -> Model:
        """What this worker holds; the state before the first update is the same wherever it is."""
        device, kept = self.before.device, self.strategy.first.replicated(outcome.state)
        if kept is None and step == 0:
            kept = self.after.optimiser.init(outcome.params)
        if kept is not None:
            kept = Kept(kept.count, tuple(device.to_host(slot) for slot in kept.slots))
        return Model(device.to_host(outcome.params), kept)

    def _held(self, told: Round, model: Model) -> Held:
        """What this worker holds. Before servers have given theirs, parameters of its own are nobody else's."""
        ranges, kept = self._ranges(model), model.kept
        state = () if kept is None else digests(ranges, kept.slots, kept.count)
        own = told == "stopped" and not self.strategy.first.synchronous
        params = () if own else digests(ranges, [model.params])
        return Held(self.node, told, updates=kept.count if kept else 0, params=params, state=state)

    def _ranges(self, model: Model) -> tuple[Range, ...]:
        return tuple(self.before.shards) or (Range(0, model.params.size),)

    async def _load(self, step: int, ruling: Ruling, model: Model, ends: float) -> tuple[Ruling, Model]:
        failed: Held | None = None
        try:
            async with self.limit.until(ends):
                model = await self._exchange(step, ruling, model)
        except* NetworkError as errors:
            failed = Held(self.node, "loaded", failure=str(first(errors)))
        return await self.control.hand_over(failed or self._held("loaded", model)), model

    async def _exchange(self, step: int, ruling: Ruling, model: Model) -> Model:
        """Give servers the ranges that are this rank's to give, or take from all of them."""
        if self.strategy.moves.to == "servers":
            await self._give(step, model)
            return model
        return await self._take(step, ruling, model)

    async def _give(self, step: int, model: Model) -> None:
        vectors = [model.params, *(model.kept.slots if model.kept and self.strategy.moves.slots else ())]
        async with asyncio.TaskGroup() as group:
            for shard, (server, kept) in enumerate(zip(self.before.servers, self.before.shards, strict=True)):
                if loader(shard, self.before.servers, self.before.workers) == self.node:
                    own = [kept.of(vector) for vector in vectors]
                    group.create_task(give(self.before.transport, server, step, own))

    async def _take(self, step: int, ruling: Ruling, model: Model) -> Model:
        moves, size = self.strategy.moves, model.params.size
        count = len(self.after.optimiser.init(model.params).slots) if moves.slots else 0
        params = np.empty_like(model.params) if moves.params else model.params
        slots = [np.empty(size, model.params.dtype) for _ in range(count)]
        into = [*([params] if moves.params else ()), *slots]
        async with asyncio.TaskGroup() as group:
            for server, kept in zip(self.before.servers, self.before.shards, strict=True):
                own = [kept.of(vector) for vector in into]
                group.create_task(take(self.before.transport, server, step, own))
        return Model(params, Kept(ruling.updates, tuple(slots)) if moves.slots else model.kept)

    def _begin(self, ruling: Ruling, model: Model) -> Outcome:
        """What the strategy after begins with."""
        device = self.after.device
        kept = self.strategy.kept(self.after.optimiser, model.params, model.kept or Kept(ruling.updates, ()))
        kept = Kept(kept.count, tuple(device.to_device(slot) for slot in kept.slots))
        params = device.to_device(model.params)
        state = self.strategy.second.resume(self.after, params, ruling.version, kept)
        return Outcome(params, state, samples=ruling.samples, underway=0)  # everybody has stopped
