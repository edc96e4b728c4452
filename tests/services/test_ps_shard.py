"""A server reports the duration of an update to the workers that waited for it."""

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


class SlowUpdateRule(UpdateRule):
    """Sleeps for UPDATE_S seconds and changes no parameter."""

    params: HostArray = VECTOR

    def update_shard_params(self, contributions: Sequence[WorkerContribution], samples_before: int) -> None:
        time.sleep(UPDATE_S)

    def make_push_reply_vector(self, worker_rank: int) -> HostArray:
        return self.params


class QueueTransport(Transport):
    """Transport of a server; the test sends and receives as its workers."""

    max_piece_bytes = min_piece_bytes = 1 << 20

    def __init__(self) -> None:
        self.traffic = SentTraffic()
        self._incoming: defaultdict[str, asyncio.Queue[Message]] = defaultdict(asyncio.Queue)
        self._outgoing: defaultdict[str, asyncio.Queue[Message]] = defaultdict(asyncio.Queue)

    async def connect(self, node_names: Iterable[str]) -> None:
        """All workers are connected."""

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        """No node is lost."""

    async def send(self, target: str, message: Message) -> None:
        self._outgoing[target].put_nowait(message)

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        return await self._incoming[source].get()

    def push(self, worker: str, step: int, stage: MessageKind = MessageKind.PUSH) -> None:
        """Send a worker's gradient or final message to the server."""
        data = VECTOR.data.cast("B") if stage == MessageKind.PUSH else b""
        self._incoming[worker].put_nowait(Message(MessageTag(step, stage), data, samples=1))

    async def answer(self, worker: str) -> Message:
        """Return the next message from the server to a worker."""
        return await self._outgoing[worker].get()


def test_only_answers_sent_after_an_update_contain_its_duration() -> None:
    """Other workers have not waited for an update: its duration would be subtracted from their exchange time."""

    async def reported_update_times() -> list[float]:
        transport, clock = QueueTransport(), WallClock()
        log = RunLog("server-0", clock, lambda line: None)
        batches = LogEventBatch(log, "shard_updates", UPDATE_COLUMNS), LogEventBatch(log, "shard_drops", UPDATE_COLUMNS)
        machine = ShardStateMachine(2, Gba(gather=2))
        server = ServerRuntime(
            ("a", "b"), SlowUpdateRule(), IdentityCompressor(), machine, transport, clock, 0, *batches
        )
        serving = asyncio.create_task(server.serve_workers())
        answers = []
        for worker, step in (("a", 0), ("b", 0), ("a", 1)):
            transport.push(worker, step)
            answers.append(await transport.answer(worker))
        transport.push("a", 2, MessageKind.LEAVE)
        transport.push("b", 1, MessageKind.LEAVE)
        await serving
        return [answer.update_s for answer in answers]

    before, updated, after = asyncio.run(reported_update_times())

    assert before == after == 0.0
    assert updated >= UPDATE_S
