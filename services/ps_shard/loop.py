"""A server at work: receives vectors, lets the machine decide, updates its range and answers."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.compressors import Compressor, from_wire
from services.parameter_server.update_rules import Contribution, UpdateRule
from services.ps_shard.machine import Action, Drop, Push, Reply, Shard, Update
from services.runtime.clock import Clock
from services.runtime.control import FinalState
from services.runtime.run_log import EventBatch
from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.arrays import HostArray

UPDATE_COLUMNS = ("version", "worker", "push_step", "staleness", "samples", "time_s")


@dataclass
class Server:
    """One range of the parameters and everybody who trains it; arrays live in host memory."""

    workers: tuple[str, ...]  # node names by rank
    rule: UpdateRule  # holds the range
    compressor: Compressor  # of what workers push
    machine: Shard
    transport: Transport
    clock: Clock
    number: int  # of the shard
    updates: EventBatch  # the arrival order, which replays to the same parameters
    drops: EventBatch  # what came too late, in the same columns; its version is that of the parameters when it came
    steps: dict[int, int] = field(init=False)  # the next of every worker that has not left
    _vectors: dict[Push, HostArray] = field(default_factory=dict)
    _read: dict[int, HostArray] = field(default_factory=dict)  # what each worker was answered last, if the rule asks
    _reads: dict[Push, HostArray] = field(default_factory=dict)  # and what a push comes from
    _update_s: float = 0.0

    def __post_init__(self) -> None:
        self.steps = dict.fromkeys(range(len(self.workers)), 0)
        if self.rule.needs_read_params:
            self._read = dict.fromkeys(range(len(self.workers)), self.rule.params)

    async def serve(self) -> bool:
        """Until every worker has left, or has stopped to hand over to another strategy: then true."""
        self.machine.resume(self.steps, self.clock.now())
        async with asyncio.TaskGroup() as group:
            attended = [group.create_task(self._attend(rank, group)) for rank in self.steps]
        self.updates.flush()
        self.drops.flush()
        return any(task.result() for task in attended)

    @property
    def final(self) -> FinalState:
        """What it hands in at its end."""
        return FinalState(self.rule.params.tobytes(), self.machine.version, self.machine.samples)

    async def _attend(self, rank: int, answers: asyncio.TaskGroup) -> bool:
        """One worker's pushes, one after the other, until it leaves or stops to hand over: then true."""
        while isinstance(push := await self._receive(rank, self.steps[rank]), Push):
            self._act(self.machine.pushed(push, self.clock.now()), answers)
            self.steps[rank] += 1
        self._act(self.machine.left(rank, self.clock.now()), answers)  # nobody waits for one who pushes no more
        if push == MessageKind.LEAVE:
            del self.steps[rank]
        return push == MessageKind.HAND_OVER

    async def _receive(self, rank: int, step: int) -> Push | int:
        """The worker's vector of `step`, kept for the update; the stage of what came instead of it."""
        worker, instead = self.workers[rank], (MessageKind.LEAVE, MessageKind.HAND_OVER)
        names = (MessageTag(step, MessageKind.PUSH), *(MessageTag(step, stage) for stage in instead))
        first = await self.transport.receive(worker, *names)
        if first.tag.kind in instead:
            return first.tag.kind
        size, dtype = self.rule.params.size, self.rule.params.dtype.name
        data = np.empty(self.compressor.nbytes(size, dtype), np.uint8)
        await receive_remaining_pieces(self.transport, worker, first, data)
        push = Push(rank, step, first.version, first.samples, first.update_s, first.skips_wait)
        self._vectors[push] = from_wire(self.compressor, data, size, dtype)
        if rank in self._read:
            self._reads[push] = self._read[rank]
        return push

    def _act(self, actions: Sequence[Action], answers: asyncio.TaskGroup) -> None:
        self._update_s = 0.0  # whoever is answered without an update has not waited for one
        for action in sorted(actions, key=self._turn):
            self._do(action, answers)

    def _turn(self, action: Action) -> int:
        """Every shard answers another worker first: all at once would queue for its link while others are idle."""
        return (action.worker - self.number - 1) % len(self.workers) if isinstance(action, Reply) else -1

    def _do(self, action: Action, answers: asyncio.TaskGroup) -> None:
        match action:
            case Update():
                self._update(action)
            case Drop(push, version):
                del self._vectors[push]
                self._reads.pop(push, None)
                self.drops.add_row(_row(push, version, version - push.version, self.clock.timestamp_ms()))
            case Reply():
                answers.create_task(self._answer(action))

    def _update(self, update: Update) -> None:
        started, started_ms = self.clock.now(), self.clock.timestamp_ms()
        self.rule.update([self._contribution(push, update.staleness(push)) for push in update.pushes])
        self._update_s = self.clock.now() - started
        for push in update.pushes:
            self.updates.add_row(_row(push, update.version, update.staleness(push), started_ms))

    def _contribution(self, push: Push, staleness: int) -> Contribution:
        vector, read = self._vectors.pop(push), self._reads.pop(push, None)
        return Contribution(push.worker, push.samples, staleness, vector, read)

    def _answer(self, reply: Reply) -> Coroutine[None, None, None]:
        """Send the worker the range as it is at this moment."""
        vector, machine = self.rule.reply_vector(reply.worker), self.machine
        if reply.worker in self._read:
            self._read[reply.worker] = vector
        message = Message(
            MessageTag(reply.step, MessageKind.REPLY),
            version=machine.version,
            samples=machine.samples,
            pending_samples=reply.underway,
            update_s=self._update_s,
            waited_s=reply.waited_s,
            skips_wait=reply.alone,
        )
        return send_vector(self.transport, self.workers[reply.worker], message, vector)


def _row(push: Push, version: int, staleness: int, now_ms: float) -> tuple[float, ...]:
    return (version, push.worker, push.step, staleness, push.samples, round(now_ms / 1e3, 6))
