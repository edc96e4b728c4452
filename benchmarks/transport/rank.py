"""One rank over a data plane of Ensayo: `python -m benchmarks.transport.rank '{"plane": "tcp", "rank": 0, ...}'`.

`jobs` describes the protocol. Vectors are summed and sent by the same code as in trials.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypedDict

import numpy as np

from benchmarks.transport.jobs import RankJob, serve_jobs
from services.cluster.addresses import Address
from services.collectives import RecursiveDoubling, Ring, TransferSchedule
from services.collectives.execution.executor import all_reduce
from services.runtime.clock import WallClock, make_precise_event_loop
from services.runtime.identity import NodeIdentity
from services.runtime.transport import DataProtection, Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import send_vector
from services.scenario.run_settings import TransportName
from services.transport.data_planes import DATA_PLANES

MESSAGE_TIMEOUT_S, MAX_LIFETIME_S = 60.0, 3600.0
SMALL_MESSAGE = b"x" * 100
HEAD_START_S = 0.02  # time between the start of sending a vector and the small message


class RankTask(TypedDict):
    """Start parameters of a rank: its data plane and the addresses of all ranks."""

    plane: TransportName
    rank: int
    hosts: list[str]
    ports: list[int]
    secrets: str
    protection: DataProtection


def main() -> None:
    """Run one rank until its standard input ends."""
    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        runner.run(_run_rank(json.loads(sys.argv[1])))


async def _run_rank(rank_task: RankTask) -> None:
    places = zip(rank_task["hosts"], rank_task["ports"], strict=True)
    addresses = {f"rank-{k}": Address(host=host, port=port) for k, (host, port) in enumerate(places)}
    ranks, me = tuple(addresses), f"rank-{rank_task['rank']}"
    identity = NodeIdentity.read(me, Path(rank_task["secrets"]) / me)
    async with DATA_PLANES[rank_task["plane"]](
        addresses, identity, WallClock(), MESSAGE_TIMEOUT_S, MAX_LIFETIME_S, protection=rank_task["protection"]
    ) as transport:
        await transport.connect(name for name in ranks if name != me)
        await serve_jobs(_DataPlaneRank(transport, ranks, rank_task["rank"]).run_job)


class _DataPlaneRank:
    """Rank that runs jobs over a transport. Every call has its own step number."""

    def __init__(self, transport: Transport, rank_names: Sequence[str], rank: int) -> None:
        self._transport = transport
        self._rank_names = rank_names
        self._rank = rank
        self._step = 0

    async def run_job(self, job: RankJob) -> float | None:
        """Run one call of a job. Return its seconds, or None at the receiver of `pair` and `beside`."""
        self._step += 1
        if job["what"] == "sum":
            return await self._sum_vectors(job["size_bytes"], job["small_bytes"])
        operations = {
            ("pair", 0): self._send_vector,
            ("pair", 1): self._receive_vector,
            ("beside", 0): self._time_small_message,
            ("beside", 1): self._acknowledge_small_message,
        }
        return await operations[job["what"], self._rank](job["size_bytes"])

    async def _sum_vectors(self, size_bytes: int, max_doubling_bytes: int) -> float:
        vector = np.ones(size_bytes // 4, np.float32)
        schedule = _sum_schedule(len(self._rank_names), is_small=size_bytes <= max_doubling_bytes)
        started = time.perf_counter()
        await all_reduce(self._transport, self._rank_names, self._rank, schedule, self._step, vector)
        seconds = time.perf_counter() - started
        if vector[0] != len(self._rank_names) or vector[-1] != len(self._rank_names):
            rank_count = len(self._rank_names)
            raise ValueError(f"wrong sum of {rank_count} vectors of ones: {vector[0]} instead of {rank_count}")
        return seconds

    async def _send_vector(self, size_bytes: int) -> float:
        """Send a vector to rank 1. Return the seconds until rank 1 has acknowledged it."""
        vector = np.ones(size_bytes // 4, np.float32)
        started = time.perf_counter()
        await send_vector(
            self._transport, self._rank_names[1], Message(MessageTag(self._step, MessageKind.PUSH)), vector
        )
        await self._transport.receive(self._rank_names[1], MessageTag(self._step, MessageKind.REPLY))
        return time.perf_counter() - started

    async def _receive_vector(self, size_bytes: int) -> None:
        """Receive a vector from rank 0 piece by piece, as in a sum, and acknowledge it."""
        received_bytes = piece = 0
        while received_bytes < size_bytes:
            received_bytes += (
                await self._transport.receive(self._rank_names[0], MessageTag(self._step, MessageKind.PUSH, 0, piece))
            ).size_bytes
            piece += 1
        await self._transport.send(self._rank_names[0], Message(MessageTag(self._step, MessageKind.REPLY)))

    async def _time_small_message(self, size_bytes: int) -> float:
        """Return the seconds of a round trip of a small message while a vector is sent to the same rank."""
        vector = asyncio.create_task(self._send_vector(size_bytes))
        await asyncio.sleep(HEAD_START_S)
        if vector.done():
            raise ValueError(f"a vector of {size_bytes} bytes is too small: it arrived within {HEAD_START_S} s")
        started = time.perf_counter()
        await self._transport.send(
            self._rank_names[1], Message(MessageTag(self._step, MessageKind.PUSH, 1), SMALL_MESSAGE)
        )
        await self._transport.receive(self._rank_names[1], MessageTag(self._step, MessageKind.REPLY, 1))
        seconds = time.perf_counter() - started
        await vector
        return seconds

    async def _acknowledge_small_message(self, size_bytes: int) -> None:
        vector = asyncio.create_task(self._receive_vector(size_bytes))
        await self._transport.receive(self._rank_names[0], MessageTag(self._step, MessageKind.PUSH, 1))
        await self._transport.send(
            self._rank_names[0], Message(MessageTag(self._step, MessageKind.REPLY, 1), SMALL_MESSAGE)
        )
        await vector


@cache  # as in trials, which compute their schedule once
def _sum_schedule(rank_count: int, *, is_small: bool) -> TransferSchedule:
    """Return recursive doubling for small vectors, else a ring.

    Recursive doubling runs without rendezvous: small vectors share a link only for a moment, unshaped links not at all.
    """
    chosen = RecursiveDoubling(rendezvous=False) if is_small else Ring()
    return chosen.plan_transfers(rank_count)


if __name__ == "__main__":
    main()
