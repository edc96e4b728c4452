"""Rival of the transport benchmark: two ranks over gRPC as in its tutorials, with a unary call for every piece.

Rank 0 sends, rank 1 receives. Both run without Ensayo's channel options and allocator settings.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from benchmarks.transport.jobs import RankJob, serve_jobs
from services.wire.data_pb2 import DataMessage, StreamReceipt

SERVICE, METHOD = "bench.Data", "Push"
PIECE_BYTES = 1 << 20  # the default limit of gRPC is 4 MiB
CONNECT_TIMEOUT_S = 60.0


def main() -> None:
    """Run one rank until its standard input ends."""
    task = json.loads(sys.argv[1])
    address = f"{task['hosts'][1]}:{task['ports'][1]}"
    if task["rank"]:
        server = _start_server(address)
        asyncio.run(serve_jobs(_ignore_job))
        server.stop(None)
        return
    with grpc.insecure_channel(address) as channel:
        push = channel.unary_unary(f"/{SERVICE}/{METHOD}", DataMessage.SerializeToString, StreamReceipt.FromString)
        push(DataMessage(), timeout=CONNECT_TIMEOUT_S, wait_for_ready=True)

        async def run_call(job: RankJob) -> float | None:
            return _send_vector(push, job["size_bytes"])

        asyncio.run(serve_jobs(run_call))


def _start_server(address: str) -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(
        _receive_piece, DataMessage.FromString, StreamReceipt.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    server.add_insecure_port(address)
    server.start()
    return server


def _receive_piece(message: DataMessage, _: Any) -> StreamReceipt:
    return StreamReceipt(messages=np.frombuffer(message.payload, np.float32).nbytes)


async def _ignore_job(_: RankJob) -> None:
    """Do nothing: the threads of the gRPC server receive the pieces."""


def _send_vector(push: Callable[[DataMessage], StreamReceipt], size_bytes: int) -> float:
    vector = np.ones(size_bytes // 4, np.float32)
    length = PIECE_BYTES // vector.itemsize
    started = time.perf_counter()
    for start in range(0, vector.size, length):
        push(DataMessage(payload=vector[start : start + length].tobytes()))
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
