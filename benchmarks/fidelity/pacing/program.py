"""Program of one worker that computes at a fixed pace, with a barrier after every step, and measures its steps.

A barrier wakes all workers at the same time, which makes naive pacing slow (`services.runtime.pacing`). The time of the
barrier is measured first, with steps without compute.
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

from services.runtime.clock import WallClock, make_precise_event_loop
from services.runtime.pacing import DeclaredSpeedPacer, is_phase_deadline_missed

MATRIX_SIZE = 64  # compute is a number of products of square matrices of this size
CALIBRATION_PRODUCTS = 1000  # products from which the time of one product is measured
WARM_UP_STEPS = 5  # first steps, which are not measured
BARRIER_PORT = 7002


@dataclass(frozen=True)
class PacingTask:
    """Task of one of several workers."""

    rank: int  # rank 0 also serves the barrier
    workers: int
    steps: int
    compute_s: float  # CPU seconds of compute per step
    step_s: float  # declared seconds of a step


@dataclass
class PacingResult:
    """Measured steps of one worker; in wall seconds."""

    barrier_s: float = 0.0  # mean step without compute
    steps_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)  # how late the compute of each step ended
    missed_deadlines: int = 0  # counted as in training


def run_pacing_worker(task: PacingTask) -> str:
    """Run one worker and return its `PacingResult` as JSON."""
    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        result = runner.run(_run_worker(task))
    return json.dumps(asdict(result))


async def _run_worker(task: PacingTask) -> PacingResult:
    barrier_server = BarrierServer(task.workers)
    if task.rank == 0:
        await barrier_server.open()
    barrier = await BarrierClient.join()
    clock, work, result = WallClock(), _compute_of(task.compute_s), PacingResult()
    pace = DeclaredSpeedPacer(clock, 1 / task.step_s, task.rank / task.workers)
    for _ in range(WARM_UP_STEPS):
        await pace.premeasure_compute_time(work)
        await barrier.wait()
    started = clock.now()
    for _ in range(task.steps):
        await barrier.wait()
    result.barrier_s = (clock.now() - started) / task.steps
    for step in range(WARM_UP_STEPS + task.steps):
        started = clock.now()
        computed = await pace.run_paced(step, 1, work)
        phase_s, late_s = clock.now() - started, computed.late_s or 0.0
        await barrier.wait()
        step_s = clock.now() - started
        if step >= WARM_UP_STEPS:
            result.steps_s.append(step_s)
            result.late_s.append(late_s)
            result.missed_deadlines += is_phase_deadline_missed(clock, late_s, phase_s, step_s)
    await barrier.leave()
    if task.rank == 0:
        await barrier_server.close()
    return result


def _compute_of(compute_s: float) -> Callable[[], None]:
    """Return a function that computes as many matrix products as take `compute_s` of a core."""
    matrix = np.random.default_rng(0).standard_normal((MATRIX_SIZE, MATRIX_SIZE)).astype(np.float32)
    for _ in range(2):  # the first measurement is discarded, since caches and libraries are cold
        started = time.thread_time()
        for _ in range(CALIBRATION_PRODUCTS):
            np.matmul(matrix, matrix)
        product_s = (time.thread_time() - started) / CALIBRATION_PRODUCTS
    count = max(1, round(compute_s / product_s))

    def work() -> None:
        for _ in range(count):
            np.matmul(matrix, matrix)

    return work


class BarrierServer:
    """Server of a barrier: replies to all workers as soon as all workers have reached the barrier."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: list[asyncio.StreamWriter] = []
        self._left_workers = 0
        self._all_left = asyncio.Event()

    async def open(self) -> None:
        """Start to listen for workers."""
        self._server = await asyncio.start_server(self._serve_worker, "127.0.0.1", BARRIER_PORT)

    async def close(self) -> None:
        """Wait until all workers have left, then stop listening."""
        await self._all_left.wait()
        self._server.close()

    async def _serve_worker(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1):
            self._waiting.append(writer)
            if len(self._waiting) == self._workers:
                for waiting_writer in self._waiting:
                    waiting_writer.write(b"!")
                self._waiting.clear()
        writer.close()
        self._left_workers += 1
        if self._left_workers == self._workers:
            self._all_left.set()


@dataclass(frozen=True)
class BarrierClient:
    """Connection of one worker to the barrier server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def join(cls) -> Self:
        """Connect to the barrier server. Retry until the server listens."""
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", BARRIER_PORT)
                break
            await asyncio.sleep(0.05)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer)

    async def wait(self) -> None:
        """Wait until all workers have reached the barrier."""
        self.writer.write(b"?")
        await self.reader.readexactly(1)

    async def leave(self) -> None:
        """Close the connection to the barrier server."""
        self.writer.close()
        await self.writer.wait_closed()


def main() -> int:
    """Run the worker that the command-line arguments describe and print its result as one line of JSON."""
    rank, workers, steps, compute_s, step_s = sys.argv[1:]
    task = PacingTask(int(rank), int(workers), int(steps), float(compute_s), float(step_s))
    sys.stdout.write(f"{run_pacing_worker(task)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
