"""Rival of the transport benchmark: a rank that sums over plain `grpc.aio`, the most that gRPC allows in Python.

It uses Ensayo's channel options, piece sizes and sums, but no node names, identities, timeouts, metering or schedules.
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

from benchmarks.transport.jobs import RankJob, serve_jobs
from services.cluster.links.message_lengths import GRPC_MESSAGE_SIZE_LIMITS
from services.transport.grpc.channels import GRPC_OPTIONS

SERVICE, METHOD = "bench.Data", "Push"
MAX_STOP_S = 5.0  # for the other ranks to end their streams
Vector: TypeAlias = npt.NDArray[np.float32]


def main() -> None:
    """Run one rank until its standard input ends."""
    asyncio.run(_run_rank(json.loads(sys.argv[1])))


async def _run_rank(rank_task: dict[str, Any]) -> None:
    rank = _BareGrpcRank(
        rank_task["rank"], [f"{host}:{port}" for host, port in zip(rank_task["hosts"], rank_task["ports"], strict=True)]
    )
    await rank.start()
    await serve_jobs(rank.run_job)
    await rank.stop()


class _BareGrpcRank:
    """Rank with a stream to every other rank and a queue of received pieces from each."""

    def __init__(self, rank: int, addresses: list[str]) -> None:
        self._rank, self._addresses = rank, addresses
        self._received: defaultdict[int, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        self._server = grpc.aio.server(options=GRPC_OPTIONS)
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._streams: dict[int, Any] = {}

    async def start(self) -> None:
        handler = grpc.stream_unary_rpc_method_handler(self._receive_stream)
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
        """End all streams. The server stops only when the streams of the other ranks have ended, too."""
        for stream in self._streams.values():
            await stream.done_writing()
        await asyncio.gather(*self._streams.values())
        await self._server.stop(MAX_STOP_S)
        for channel in self._channels.values():
            await channel.close()

    async def run_job(self, job: RankJob) -> float:
        """Sum a vector of ones and return the seconds: by recursive doubling up to the job's bound, else by a ring."""
        vector, ranks = np.ones(job["size_bytes"] // 4, np.float32), len(self._addresses)
        started = time.perf_counter()
        if job["size_bytes"] <= job["small_bytes"]:
            await self._sum_by_recursive_doubling(vector)
        else:
            await self._sum_by_ring(vector)
        seconds = time.perf_counter() - started
        if vector[0] != ranks or vector[-1] != ranks:
            raise ValueError(f"wrong sum of {ranks} vectors of ones: {vector[0]} instead of {ranks}")
        return seconds

    async def _receive_stream(self, pieces: AsyncIterator[bytes], context: Any) -> bytes:
        received = self._received[int(dict(context.invocation_metadata())["rank"])]
        async for piece in pieces:
            received.put_nowait(piece)
        return b""

    async def _sum_by_recursive_doubling(self, vector: Vector) -> None:
        """Sum by exchanges with partners at the distances 1, 2, 4, ...; the number of ranks is a power of two."""
        for distance in (1 << k for k in range((len(self._addresses) - 1).bit_length())):
            partner = self._rank ^ distance
            due: asyncio.Queue[bytes | None] = asyncio.Queue()
            sending = asyncio.create_task(self._send_queued(partner, due))
            for piece in _split(vector, GRPC_MESSAGE_SIZE_LIMITS.max_message_bytes):
                due.put_nowait(piece.tobytes())
            due.put_nowait(None)
            for piece in _split(vector, GRPC_MESSAGE_SIZE_LIMITS.max_message_bytes):
                np.add(piece, np.frombuffer(await self._received[partner].get(), np.float32), out=piece)
            await sending

    async def _sum_by_ring(self, vector: Vector) -> None:
        """Sum by a ring. Every piece is sent on as soon as it has been added, or unchanged once it is a total."""
        ranks, rank = len(self._addresses), self._rank
        chunks, right, left = np.array_split(vector, ranks), (rank + 1) % ranks, (rank - 1) % ranks
        due: asyncio.Queue[bytes | None] = asyncio.Queue()
        sending = asyncio.create_task(self._send_queued(right, due))
        longest = min(
            GRPC_MESSAGE_SIZE_LIMITS.max_message_bytes,
            max(GRPC_MESSAGE_SIZE_LIMITS.min_piece_bytes, -(-vector.nbytes // (2 * ranks))),
        )  # at least two pieces per chunk
        for piece in _split(chunks[rank], longest):
            due.put_nowait(piece.tobytes())
        for turn in range(2 * (ranks - 1)):
            for piece in _split(chunks[(rank - turn - 1) % ranks], longest):
                part = await self._received[left].get()
                if turn < ranks - 1:
                    np.add(piece, np.frombuffer(part, np.float32), out=piece)
                    part = piece.tobytes()
                else:
                    piece[:] = np.frombuffer(part, np.float32)
                if turn < 2 * (ranks - 1) - 1:
                    due.put_nowait(part)
        due.put_nowait(None)
        await sending

    async def _send_queued(self, peer: int, outgoing: "asyncio.Queue[bytes | None]") -> None:
        while (part := await outgoing.get()) is not None:
            await self._streams[peer].write(part)


def _split(vector: Vector, max_piece_bytes: int) -> Iterator[Vector]:
    """Return the pieces of a vector, each of at most `max_piece_bytes`."""
    length = max_piece_bytes // vector.itemsize
    return (vector[start : start + length] for start in range(0, vector.size, length))


if __name__ == "__main__":
    main()
