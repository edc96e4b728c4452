"""A server at work: receives gradients, lets the machine decide, updates its range and answers."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.clock import Clock
from services.compressors import Compressor, from_wire
from services.device import HostArray
from services.optimisers import AnyOptimiser, State
from services.ps_shard.machine import Action, Push, Reply, Shard, Update
from services.runlog import Batch
from services.transport.base import Message, Stage, Tag, Transport
from services.transport.vectors import recv_rest, send_vector

UPDATE_COLUMNS = ("version", "worker", "push_step", "staleness", "samples", "time_s")


@dataclass
class Server:
    """One range of the parameters and everybody who trains it; arrays live in host memory."""

    number: int  # of its range
    workers: tuple[str, ...]  # node names by rank
    params: HostArray  # this server's range, replaced and never changed in place: answers may still be on their way
    compressor: Compressor  # of what workers push
    optimiser: AnyOptimiser
    state: State
    machine: Shard
    transport: Transport
    clock: Clock
    updates: Batch  # the arrival order, which replays to the same parameters
    _gradients: dict[int, HostArray] = field(default_factory=dict)
    _update_s: float = 0.0

    async def serve(self) -> None:
        """Until every worker has left."""
        async with asyncio.TaskGroup() as group:
            for rank in range(len(self.workers)):
                group.create_task(self._attend(rank, group))
        self.updates.flush()

    async def _attend(self, rank: int, answers: asyncio.TaskGroup) -> None:
        """One worker's pushes, one after the other, until it leaves."""
        step = 0
        while push := await self._receive(rank, step):
            for action in sorted(self.machine.pushed(push), key=self._turn):
                self._act(action, answers)
            step += 1
        for action in sorted(self.machine.left(rank), key=self._turn):
            self._act(action, answers)

    def _turn(self, action: Action) -> int:
        """Updates first; then every server begins with another worker, so that no worker's link is idle meanwhile."""
        return (action.worker - self.number - 1) % len(self.workers) if isinstance(action, Reply) else -1

    async def _receive(self, rank: int, step: int) -> Push | None:
        """The worker's gradient of `step`, kept for the update; None when it has left."""
        worker = self.workers[rank]
        first = await self.transport.recv(worker, Tag(step, Stage.PUSH), Tag(step, Stage.LEAVE))
        if first.tag.stage == Stage.LEAVE:
            return None
        size, dtype = self.params.size, self.params.dtype.name
        data = np.empty(self.compressor.nbytes(size, dtype), np.uint8)
        await recv_rest(self.transport, worker, first, data)
        self._gradients[rank] = from_wire(self.compressor, data, size, dtype)
        return Push(rank, step, first.version, first.samples)

    def _act(self, action: Action, answers: asyncio.TaskGroup) -> None:
        match action:
            case Update():
                self._update(action)
            case Reply():
                answers.create_task(self._answer(action))

    def _update(self, update: Update) -> None:
        """One step of the optimiser with the mean over all samples of the gradients, summed in rank order."""
        started, started_ms = self.clock.now(), self.clock.epoch_ms()
        samples = sum(push.samples for push in update.pushes)
        gradients = [self._gradients.pop(push.worker) for push in update.pushes]
        if samples:
            shares = [push.samples / samples for push in update.pushes]
            self.params, self.state = self.optimiser.step(self.params, weighted_sum(gradients, shares), self.state)
        self._update_s = self.clock.now() - started
        for push in update.pushes:
            stale = update.version - 1 - push.version
            self.updates.add((update.version, push.worker, push.step, stale, push.samples, round(started_ms / 1e3, 6)))

    def _answer(self, reply: Reply) -> Coroutine[None, None, None]:
        """Send the worker the range as it is at this moment."""
        tag = Tag(reply.step, Stage.REPLY)
        message = Message(tag, version=self.machine.version, samples=self.machine.samples, update_s=self._update_s)
        return send_vector(self.transport, self.workers[reply.worker], message, self.params)


def weighted_sum(vectors: Sequence[HostArray], weights: Sequence[float]) -> HostArray:
    """The sum of vectors (n,), each times its weight, formed in the order given."""
    total: HostArray = vectors[0] * vectors[0].dtype.type(weights[0])
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        total += vector * vector.dtype.type(weight)
    return total
