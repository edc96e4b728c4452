"""One rank over a data plane of ours: `python -m benchmarks.transport.rank '{"plane": "tcp", "rank": 0, ...}'`.

`jobs` says how it is spoken to. Vectors are summed and sent by the same code as in trials.
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

from benchmarks.transport.jobs import Job, serve
from services.cluster.addresses import Address
from services.collectives import RecursiveDoubling, Ring, Schedule
from services.collectives.execution.executor import all_reduce
from services.runtime.clock import WallClock, precise_event_loop
from services.runtime.identity import NodeIdentity
from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import send_vector
from services.scenario.scenario import TransportName
from services.transport.planes import DATA_PLANES

PATIENCE_S, LIFE_S = 60.0, 3600.0
SMALL = b"x" * 100
HEAD_START_S = 0.02  # for a vector, before a small message follows it


class Task(TypedDict):
    """What a rank has to know."""

    plane: TransportName
    rank: int
    hosts: list[str]
    ports: list[int]
    secrets: str


def main() -> None:
    """Live as one rank until the input ends."""
    with asyncio.Runner(loop_factory=precise_event_loop) as runner:
        runner.run(_live(json.loads(sys.argv[1])))


async def _live(task: Task) -> None:
    places = zip(task["hosts"], task["ports"], strict=True)
    addresses = {f"rank-{k}": Address(host=host, port=port) for k, (host, port) in enumerate(places)}
    ranks, me = tuple(addresses), f"rank-{task['rank']}"
    identity = NodeIdentity.read(me, Path(task["secrets"]) / me)
    async with DATA_PLANES[task["plane"]](addresses, identity, WallClock(), PATIENCE_S, LIFE_S) as transport:
        await transport.connect(name for name in ranks if name != me)
        await serve(_Rank(transport, ranks, task["rank"]).call)


class _Rank:
    """Its jobs, each call under a step of its own."""

    def __init__(self, transport: Transport, ranks: Sequence[str], rank: int) -> None:
        self._transport = transport
        self._ranks = ranks
        self._rank = rank
        self._step = 0

    async def call(self, job: Job) -> float | None:
        """Seconds; where one rank sends to another, those of the sender."""
        self._step += 1
        if job["what"] == "sum":
            return await self._sum(job["size_bytes"], job["small_bytes"])
        talk = {("pair", 0): self._send, ("pair", 1): self._hear, ("beside", 0): self._hurry, ("beside", 1): self._echo}
        return await talk[job["what"], self._rank](job["size_bytes"])

    async def _sum(self, size_bytes: int, small_bytes: int) -> float:
        vector = np.ones(size_bytes // 4, np.float32)
        schedule = _schedule(len(self._ranks), is_small=size_bytes <= small_bytes)
        started = time.perf_counter()
        await all_reduce(self._transport, self._ranks, self._rank, schedule, self._step, vector)
        seconds = time.perf_counter() - started
        if vector[0] != len(self._ranks) or vector[-1] != len(self._ranks):
            raise ValueError(f"the sum of {len(self._ranks)} ones is not {vector[0]}")
        return seconds

    async def _send(self, size_bytes: int) -> float:
        """A vector, until the other has it."""
        vector = np.ones(size_bytes // 4, np.float32)
        started = time.perf_counter()
        await send_vector(self._transport, self._ranks[1], Message(MessageTag(self._step, MessageKind.PUSH)), vector)
        await self._transport.receive(self._ranks[1], MessageTag(self._step, MessageKind.REPLY))
        return time.perf_counter() - started

    async def _hear(self, size_bytes: int) -> None:
        """Take the vector piece by piece, as a sum would; say that all of it has come."""
        taken = piece = 0
        while taken < size_bytes:
            taken += (
                await self._transport.receive(self._ranks[0], MessageTag(self._step, MessageKind.PUSH, 0, piece))
            ).size_bytes
            piece += 1
        await self._transport.send(self._ranks[0], Message(MessageTag(self._step, MessageKind.REPLY)))

    async def _hurry(self, size_bytes: int) -> float:
        """A small message and its answer, while a vector is under way to the same node."""
        vector = asyncio.create_task(self._send(size_bytes))
        await asyncio.sleep(HEAD_START_S)
        if vector.done():
            raise ValueError(f"{size_bytes} bytes are too few to be under way for {HEAD_START_S} s")
        started = time.perf_counter()
        await self._transport.send(self._ranks[1], Message(MessageTag(self._step, MessageKind.PUSH, 1), SMALL))
        await self._transport.receive(self._ranks[1], MessageTag(self._step, MessageKind.REPLY, 1))
        seconds = time.perf_counter() - started
        await vector
        return seconds

    async def _echo(self, size_bytes: int) -> None:
        vector = asyncio.create_task(self._hear(size_bytes))
        await self._transport.receive(self._ranks[0], MessageTag(self._step, MessageKind.PUSH, 1))
        await self._transport.send(self._ranks[0], Message(MessageTag(self._step, MessageKind.REPLY, 1), SMALL))
        await vector


@cache  # as in trials, whose plan has one
def _schedule(ranks: int, *, is_small: bool) -> Schedule:
    """Nobody is held back: a small vector shares a link with others for a moment, and what is not shaped has none."""
    chosen = RecursiveDoubling(rendezvous=False) if is_small else Ring()
    return chosen.schedule(ranks)


if __name__ == "__main__":
    main()
