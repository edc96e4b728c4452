"""Rival of the transport benchmark: two ranks over plain TCP sockets, the most that Python can transfer.

Rank 0 sends, rank 1 receives.
"""

import asyncio
import json
import socket
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np

from benchmarks.transport.jobs import RankJob, serve_jobs

PIECE_BYTES = 1 << 20  # small enough to stay in the CPU cache
RETRY_S = 0.05


def main() -> None:
    """Run one rank until its standard input ends."""
    task = json.loads(sys.argv[1])
    peer = _accept_sender(task) if task["rank"] else _connect_to_receiver(task)

    async def run_call(job: RankJob) -> float | None:
        if not task["rank"]:
            return _send_vector(peer, job["size_bytes"])
        _receive_vector(peer, job["size_bytes"])
        return None

    asyncio.run(serve_jobs(run_call))


def _accept_sender(rank_task: dict[str, Any]) -> socket.socket:
    with socket.create_server((rank_task["hosts"][1], rank_task["ports"][1])) as server:
        return server.accept()[0]


def _connect_to_receiver(rank_task: dict[str, Any]) -> socket.socket:
    while True:
        with suppress(ConnectionRefusedError):  # the receiver starts at about the same time
            return socket.create_connection((rank_task["hosts"][1], rank_task["ports"][1]))
        time.sleep(RETRY_S)


def _send_vector(peer: socket.socket, size_bytes: int) -> float:
    view = np.ones(size_bytes // 4, np.float32).data.cast("B")
    started = time.perf_counter()
    for start in range(0, len(view), PIECE_BYTES):
        peer.sendall(view[start : start + PIECE_BYTES])
    peer.recv(1)
    return time.perf_counter() - started


def _receive_vector(peer: socket.socket, size_bytes: int) -> None:
    buffer, remaining_bytes = memoryview(bytearray(PIECE_BYTES)), size_bytes
    while remaining_bytes:
        if not (received_bytes := peer.recv_into(buffer[:remaining_bytes])):
            raise ConnectionResetError(f"the sender closed the connection {remaining_bytes} bytes too early")
        remaining_bytes -= received_bytes
    peer.send(b"x")


if __name__ == "__main__":
    main()
