"""One of two ranks over gRPC as its tutorials have it: a unary call with a protobuf message for every piece.

Rank 0 sends, rank 1 takes; neither has our options, nor our settings of the allocator.
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

from benchmarks.transport.jobs import Job, serve
from services.wire.data_pb2 import DataMessage, StreamReceipt

SERVICE, METHOD = "bench.Data", "Push"
PIECE_BYTES = 1 << 20  # gRPC's own limit is 4 MiB
PATIENCE_S = 60.0


def main() -> None:
    """Live as one rank until the input ends."""
    task = json.loads(sys.argv[1])
    address = f"{task['hosts'][1]}:{task['ports'][1]}"
    if task["rank"]:
        server = _serving(address)
        asyncio.run(serve(_nothing))
        server.stop(None)
        return
    with grpc.insecure_channel(address) as channel:
        push = channel.unary_unary(f"/{SERVICE}/{METHOD}", DataMessage.SerializeToString, StreamReceipt.FromString)
        push(DataMessage(), timeout=PATIENCE_S, wait_for_ready=True)

        async def call(job: Job) -> float | None:
            return _send(push, job["size_bytes"])

        asyncio.run(serve(call))


def _serving(address: str) -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(_take, DataMessage.FromString, StreamReceipt.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    server.add_insecure_port(address)
    server.start()
    return server


def _take(part: DataMessage, _: Any) -> StreamReceipt:
    return StreamReceipt(messages=np.frombuffer(part.payload, np.float32).nbytes)


async def _nothing(_: Job) -> None:
    """The server's threads do everything."""


def _send(push: Callable[[DataMessage], StreamReceipt], size_bytes: int) -> float:
    vector = np.ones(size_bytes // 4, np.float32)
    length = PIECE_BYTES // vector.itemsize
    started = time.perf_counter()
    for start in range(0, vector.size, length):
        push(DataMessage(payload=vector[start : start + length].tobytes()))
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
