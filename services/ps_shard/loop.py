"""A server at work: receives gradients, lets the machine decide, updates its range and answers."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
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

    workers: tuple[str, ...]  # node names by rank
    params: HostArray  # this server's range, replaced and never changed in place: answers may still be on their way
    compressor: Compressor  # of what workers push
    optimiser: AnyOptimiser
    state: State
    machine: Shard
    transport: Transport
    clock: Clock
    updates: Batch  # the arrival order, which replays to the same parameters
    steps: dict[int, int] = field(init=False)  # the next of every worker that has not left
    _gradients: dict[int, HostArray] = field(default_factory=dict)
    _update_s: float = 0.0

    def __post_init__(self) -> None:
        self.steps = dict.fromkeys(range(len(self.workers)), 0)

    async def serve(self) -> bool:
        """Until every worker has left, or has stopped to hand over to another strategy: then true."""
        async with asyncio.TaskGroup() as group:
            attended = [group.create_task(self._attend(rank, group)) for rank in self.steps]
        self.updates.flush()
        return any(task.result() for task in attended)

    def resume(self, steps: Mapping[int, int]) -> None:
        """Expect these next steps of workers; none of those that are not named."""
        self.steps = dict(steps)
        self.machine.resume(steps)

    async def _attend(self, rank: int, answers: asyncio.TaskGroup) -> bool:
        """One worker's pushes, one after the other, until it leaves or stops to hand over: then true."""
        while isinstance(push := await self._receive(rank, self.steps[rank]), Push):
            for action in self.machine.pushed(push):
                self._act(action, answers)
            self.steps[rank] += 1
        for action in self.machine.left(rank):  # nobody waits for one who pushes no more, for now or for good
            self._act(action, answers)
        if push == Stage.LEAVE:
            del self.steps[rank]
        return push == Stage.HAND_OVER

    async def _receive(self, rank: int, step: int) -> Push | int:
        """The worker's gradient of `step`, kept for the update; the stage of what came instead of it."""
        worker, instead = self.workers[rank], (Stage.LEAVE, Stage.HAND_OVER)
        names = (Tag(step, Stage.PUSH), *(Tag(step, stage) for stage in instead))
        first = await self.transport.recv(worker, *names)
        if first.tag.stage in instead:
            return first.tag.stage
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
