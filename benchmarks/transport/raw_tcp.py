"""One of two ranks over sockets alone: what Python can move at most. Rank 0 sends, rank 1 takes."""

import asyncio
import json
import socket
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np

from benchmarks.transport.jobs import Job, serve

PIECE_BYTES = 1 << 20  # stays in the cache
RETRY_S = 0.05


def main() -> None:
    """Live as one rank until the input ends."""
    task = json.loads(sys.argv[1])
    peer = _taken(task) if task["rank"] else _dialled(task)

    async def call(job: Job) -> float | None:
        if not task["rank"]:
            return _send(peer, job["size_bytes"])
        _take(peer, job["size_bytes"])
        return None

    asyncio.run(serve(call))


def _taken(task: dict[str, Any]) -> socket.socket:
    with socket.create_server((task["hosts"][1], task["ports"][1])) as server:
        return server.accept()[0]


def _dialled(task: dict[str, Any]) -> socket.socket:
    while True:
        with suppress(ConnectionRefusedError):  # the other begins at about the same time
            return socket.create_connection((task["hosts"][1], task["ports"][1]))
        time.sleep(RETRY_S)


def _send(peer: socket.socket, size_bytes: int) -> float:
    view = np.ones(size_bytes // 4, np.float32).data.cast("B")
    started = time.perf_counter()
    for start in range(0, len(view), PIECE_BYTES):
        peer.sendall(view[start : start + PIECE_BYTES])
    peer.recv(1)
    return time.perf_counter() - started


def _take(peer: socket.socket, size_bytes: int) -> None:
    room, left = memoryview(bytearray(PIECE_BYTES)), size_bytes
    while left:
        if not (size := peer.recv_into(room[:left])):
            raise ConnectionResetError("the sender has gone")
        left -= size
    peer.send(b"x")


if __name__ == "__main__":
    main()
