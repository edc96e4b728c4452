"""One rank that sums over bare `grpc.aio`: what gRPC lets Python reach at most, without anything that a trial needs.

Our options, our pieces and our sums; but no names, identities, patience, metering or schedules.
"""

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias

import grpc
import numpy as np
import numpy.typing as npt

from benchmarks.transport.jobs import Job, serve
from services.cluster.message_lengths import GRPC_MESSAGE_LENGTHS
from services.transport.grpc.channels import GRPC_OPTIONS

SERVICE, METHOD = "bench.Data", "Push"
Vector: TypeAlias = npt.NDArray[np.float32]


def main() -> None:
    """Live as one rank until the input ends."""
    asyncio.run(_live(json.loads(sys.argv[1])))


async def _live(task: dict[str, Any]) -> None:
    rank = _Rank(task["rank"], [f"{host}:{port}" for host, port in zip(task["hosts"], task["ports"], strict=True)])
    await rank.start()
    await serve(rank.call)
    await rank.stop()


class _Rank:
    """A stream to every other rank, and what has come from each, in its order."""

    def __init__(self, rank: int, addresses: list[str]) -> None:
        self._rank, self._addresses = rank, addresses
        self._came: defaultdict[int, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        self._server = grpc.aio.server(options=GRPC_OPTIONS)
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._streams: dict[int, Any] = {}

    async def start(self) -> None:
        handler = grpc.stream_unary_rpc_method_handler(self._take)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        self._server.add_insecure_port(self._addresses[self._rank])
        await self._server.start()
        for peer, address in enumerate(self._addresses):
            if peer != self._rank:
                self._channels[peer] = grpc.aio.insecure_channel(address, options=GRPC_OPTIONS)
                open_stream = self._channels[peer].stream_unary(f"/{SERVICE}/{METHOD}")
                self._streams[peer] = open_stream(metadata=(("rank", str(self._rank)),), wait_for_ready=True)
                await self._streams[peer].wait_for_connection()

    async def stop(self) -> None:
        for peer, stream in self._streams.items():
            await stream.done_writing()
            await stream
            await self._channels[peer].close()
        await self._server.stop(None)

    async def call(self, job: Job) -> float:
        """Seconds of a sum: by recursive doubling up to the job's bound, by a ring beyond."""
        vector, ranks = np.ones(job["size_bytes"] // 4, np.float32), len(self._addresses)
        started = time.perf_counter()
        if job["size_bytes"] <= job["small_bytes"]:
            await self._double(vector)
        else:
            await self._ring(vector)
        seconds = time.perf_counter() - started
        if vector[0] != ranks or vector[-1] != ranks:
            raise ValueError(f"the sum of {ranks} ones is not {vector[0]}")
        return seconds

    async def _take(self, parts: AsyncIterator[bytes], context: Any) -> bytes:
        came = self._came[int(dict(context.invocation_metadata())["rank"])]
        async for part in parts:
            came.put_nowait(part)
        return b""

    async def _double(self, vector: Vector) -> None:
        """With partners at the distances 1, 2, 4...; ranks are a power of two."""
        for distance in (1 << k for k in range((len(self._addresses) - 1).bit_length())):
            partner = self._rank ^ distance
            due: asyncio.Queue[bytes | None] = asyncio.Queue()
            sending = asyncio.create_task(self._pass_on(partner, due))
            for piece in _cut(vector, GRPC_MESSAGE_LENGTHS.largest_bytes):
                due.put_nowait(piece.tobytes())
            due.put_nowait(None)
            for piece in _cut(vector, GRPC_MESSAGE_LENGTHS.largest_bytes):
                np.add(piece, np.frombuffer(await self._came[partner].get(), np.float32), out=piece)
            await sending

    async def _ring(self, vector: Vector) -> None:
        """Every piece is passed on as soon as it has been added, or, as a total, as it came."""
        ranks, rank = len(self._addresses), self._rank
        chunks, right, left = np.array_split(vector, ranks), (rank + 1) % ranks, (rank - 1) % ranks
        due: asyncio.Queue[bytes | None] = asyncio.Queue()
        sending = asyncio.create_task(self._pass_on(right, due))
        longest = min(
            GRPC_MESSAGE_LENGTHS.largest_bytes, max(GRPC_MESSAGE_LENGTHS.finest_bytes, -(-vector.nbytes // (2 * ranks)))
        )  # of a chunk two at least
        for piece in _cut(chunks[rank], longest):
            due.put_nowait(piece.tobytes())
        for turn in range(2 * (ranks - 1)):
            for piece in _cut(chunks[(rank - turn - 1) % ranks], longest):
                part = await self._came[left].get()
                if turn < ranks - 1:
                    np.add(piece, np.frombuffer(part, np.float32), out=piece)
                    part = piece.tobytes()
                else:
                    piece[:] = np.frombuffer(part, np.float32)
                if turn < 2 * (ranks - 1) - 1:
                    due.put_nowait(part)
        due.put_nowait(None)
        await sending

    async def _pass_on(self, to: int, due: "asyncio.Queue[bytes | None]") -> None:
        while (part := await due.get()) is not None:
            await self._streams[to].write(part)


def _cut(chunk: Vector, longest: int) -> Iterator[Vector]:
    """Pieces of at most so many bytes."""
    length = longest // chunk.itemsize
    return (chunk[start : start + length] for start in range(0, chunk.size, length))


if __name__ == "__main__":
    main()
