"""What does a server tell workers of its own time?"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from services.compressors import IdentityCompressor
from services.parameter_server.synchronisers import Gba
from services.parameter_server.update_rules import UpdateRule, WorkerContribution
from services.ps_shard.machine import ShardStateMachine
from services.ps_shard.runtime import ServerRuntime
from services.runtime.clock import WallClock
from services.runtime.run_log import UPDATE_COLUMNS, LogEventBatch, RunLog
from services.runtime.transport import Message, MessageKind, MessageTag, SentTraffic, Transport
from services.schema.arrays import HostArray

UPDATE_S = 0.02
VECTOR = np.zeros(4, np.float32)


class Slow(UpdateRule):
    """Takes its time and changes nothing."""

    params: HostArray = VECTOR

    def update(self, contributions: Sequence[WorkerContribution]) -> None:
        time.sleep(UPDATE_S)

    def reply_vector(self, worker_rank: int) -> HostArray:
        return self.params


class Desk(Transport):
    """A server's transport, of which the test is all the others."""

    max_piece_bytes = min_piece_bytes = 1 << 20

    def __init__(self) -> None:
        self.traffic = SentTraffic()
        self._come: defaultdict[str, asyncio.Queue[Message]] = defaultdict(asyncio.Queue)
        self._gone: defaultdict[str, asyncio.Queue[Message]] = defaultdict(asyncio.Queue)

    async def connect(self, node_names: Iterable[str]) -> None:
        """Everybody is here."""

    async def send(self, target: str, message: Message) -> None:
        self._gone[target].put_nowait(message)

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        return await self._come[source].get()

    def push(self, worker: str, step: int, stage: MessageKind = MessageKind.PUSH) -> None:
        """A worker's gradient, or its last word."""
        data = VECTOR.data.cast("B") if stage == MessageKind.PUSH else b""
        self._come[worker].put_nowait(Message(MessageTag(step, stage), data, samples=1))

    async def answer(self, worker: str) -> Message:
        """What it is sent."""
        return await self._gone[worker].get()


def test_only_who_was_answered_after_an_update_is_told_how_long_it_took() -> None:
    """Others have not waited for one: charged to them, it would be missing in their exchange."""

    async def told() -> list[float]:
        desk, clock = Desk(), WallClock()
        log = RunLog("server-0", clock, lambda line: None)
        batches = LogEventBatch(log, "shard_updates", UPDATE_COLUMNS), LogEventBatch(log, "shard_drops", UPDATE_COLUMNS)
        machine = ShardStateMachine(2, Gba(gather=2))
        server = ServerRuntime(("a", "b"), Slow(), IdentityCompressor(), machine, desk, clock, 0, *batches)
        serving = asyncio.create_task(server.serve_workers())
        answers = []
        for worker, step in (("a", 0), ("b", 0), ("a", 1)):
            desk.push(worker, step)
            answers.append(await desk.answer(worker))
        desk.push("a", 2, MessageKind.LEAVE)
        desk.push("b", 1, MessageKind.LEAVE)
        await serving
        return [answer.update_s for answer in answers]

    before, updated, after = asyncio.run(told())

    assert before == after == 0.0
    assert updated >= UPDATE_S
