"""How well do workers keep their pace on this host? Nodes that do nothing else, with a barrier after every step.

A barrier wakes all workers at once, which is what makes naive pacing slow (`services.runtime.pacing`); its own time is measured
first, by steps without mathematics.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Self

import numpy as np

from services.runtime.clock import WallClock, precise_event_loop
from services.runtime.pacing import DevicePacer, is_deadline_missed

SIZE = 64  # of the matrices whose products are the mathematics
COUNTED = 1000  # products that show how long one takes
DROPPED = 5  # steps until everything has settled
PORT = 7002


@dataclass(frozen=True)
class Beat:
    """What one of several workers is to do."""

    rank: int  # 0 holds the barrier as well
    workers: int
    steps: int
    work_s: float  # CPU seconds of mathematics per step
    step_s: float  # what a step takes on the device


@dataclass
class Kept:
    """What came of it; wall seconds."""

    barrier_s: float = 0.0  # of a step without mathematics, mean
    steps_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    missed: int = 0  # deadlines, counted as in training


def beat(what: Beat) -> str:
    """Live as one such worker; JSON of `Kept`."""
    with asyncio.Runner(loop_factory=precise_event_loop) as runner:
        kept = runner.run(_beat(what))
    return json.dumps(asdict(kept))


async def _beat(what: Beat) -> Kept:
    holder = Holder(what.workers)
    if what.rank == 0:
        await holder.open()
    barrier = await Barrier.join()
    clock, work, kept = WallClock(), _mathematics(what.work_s), Kept()
    pace = DevicePacer(clock, 1 / what.step_s, what.rank / what.workers)
    for _ in range(DROPPED):
        await pace.learn_compute_time(work)
        await barrier.wait()
    started = clock.now()
    for _ in range(what.steps):
        await barrier.wait()
    kept.barrier_s = (clock.now() - started) / what.steps
    for step in range(DROPPED + what.steps):
        started = clock.now()
        computed = await pace.compute(step, 1, work)
        phase_s, late_s = clock.now() - started, computed.late_s or 0.0
        await barrier.wait()
        step_s = clock.now() - started
        if step >= DROPPED:
            kept.steps_s.append(step_s)
            kept.late_s.append(late_s)
            kept.missed += is_deadline_missed(clock, late_s, phase_s, step_s)
    await barrier.leave()
    if what.rank == 0:
        await holder.close()
    return kept


def _mathematics(work_s: float) -> Callable[[], None]:
    """So many products that they take `work_s` of a core."""
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    for _ in range(2):  # the first time, caches and libraries are cold
        started = time.thread_time()
        for _ in range(COUNTED):
            np.matmul(matrix, matrix)
        product_s = (time.thread_time() - started) / COUNTED
    count = max(1, round(work_s / product_s))

    def work() -> None:
        for _ in range(count):
            np.matmul(matrix, matrix)

    return work


class Holder:
    """Answers everybody once everybody has asked."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._asking: list[asyncio.StreamWriter] = []
        self._left = 0
        self._deserted = asyncio.Event()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._attend, "127.0.0.1", PORT)

    async def close(self) -> None:
        """Return when all have left."""
        await self._deserted.wait()
        self._server.close()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1):
            self._asking.append(writer)
            if len(self._asking) == self._workers:
                for each in self._asking:
                    each.write(b"!")
                self._asking.clear()
        writer.close()
        self._left += 1
        if self._left == self._workers:
            self._deserted.set()


@dataclass(frozen=True)
class Barrier:
    """One worker's side of it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def join(cls) -> Self:
        """Wait for its holder to be there."""
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
                break
            await asyncio.sleep(0.05)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer)

    async def wait(self) -> None:
        """Return when all have called it."""
        self.writer.write(b"?")
        await self.reader.readexactly(1)

    async def leave(self) -> None:
        """Take no part any more."""
        self.writer.close()
        await self.writer.wait_closed()


def main() -> int:
    """Run the worker that the arguments describe and print its result as one line of JSON."""
    rank, workers, steps, work_s, step_s = sys.argv[1:]
    sys.stdout.write(f"{beat(Beat(int(rank), int(workers), int(steps), float(work_s), float(step_s)))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
