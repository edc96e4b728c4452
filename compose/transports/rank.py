"""One rank over a data plane of ours: `python -m compose.transports.rank '{"plane": "tcp", "rank": 0, ...}'`.

A line in is a job, such as `{"size_bytes": 4096, "calls": 50}`; a line out is what a call took here, in seconds, and
its CPU time. Vectors are summed by the same code as in trials.
"""

import asyncio
import json
import resource
import sys
import time
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

import numpy as np

from services.clock import WallClock, precise_loop
from services.collectives import RecursiveDoubling, Ring, Schedule
from services.collectives.executor import all_reduce
from services.device import HostArray
from services.identity import Identity
from services.plan import Address
from services.scenario import TransportName
from services.transport.base import Transport
from services.transport.planes import PLANES

PATIENCE_S, LIFE_S = 60.0, 3600.0
WARM_UPS = 1
DOUBLED_BYTES = 128 << 10  # up to here log2(n) exchanges of everything are faster than 2(n - 1) of a part


class Task(TypedDict):
    """What a rank has to know."""

    plane: TransportName
    rank: int
    hosts: list[str]
    ports: list[int]
    secrets: str


def main() -> None:
    """Live as one rank until the input ends."""
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(_live(json.loads(sys.argv[1])))


async def _live(task: Task) -> None:
    places = zip(task["hosts"], task["ports"], strict=True)
    addresses = {f"rank-{k}": Address(host=host, port=port) for k, (host, port) in enumerate(places)}
    ranks, me = tuple(addresses), f"rank-{task['rank']}"
    identity = Identity.read(me, Path(task["secrets"]) / me)
    transport = PLANES[task["plane"]](addresses, identity, WallClock(), PATIENCE_S, LIFE_S)
    await transport.start()
    await transport.connect(name for name in ranks if name != me)
    await _work(transport, ranks, task["rank"])
    await transport.stop()


async def _work(transport: Transport, ranks: tuple[str, ...], rank: int) -> None:
    loop, step = asyncio.get_running_loop(), 0
    print("ready", flush=True)  # noqa: T201 - the bench reads it
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        job = json.loads(line)
        taken, before = [], 0.0
        for call in range(WARM_UPS + job["calls"]):
            before = _cpu_s() if call == WARM_UPS else before
            vector = np.ones(job["size_bytes"] // 4, np.float32)
            started = time.perf_counter()
            await _sum(transport, ranks, rank, step, vector)
            taken.append(time.perf_counter() - started)
            step += 1
            if vector[0] != len(ranks) or vector[-1] != len(ranks):
                raise ValueError(f"the sum of {len(ranks)} ones is not {vector[0]}")
        answer = {"seconds": median(taken[WARM_UPS:]), "cpu_s": (_cpu_s() - before) / job["calls"]}
        print(json.dumps(answer), flush=True)  # noqa: T201 - the bench reads it


async def _sum(transport: Transport, ranks: tuple[str, ...], rank: int, step: int, vector: HostArray) -> None:
    await all_reduce(transport, ranks, rank, _schedule(len(ranks), vector.nbytes), step, vector)


@cache  # as in trials, whose plan has one
def _schedule(ranks: int, size_bytes: int) -> Schedule:
    return (RecursiveDoubling() if size_bytes <= DOUBLED_BYTES else Ring()).schedule(ranks)


def _cpu_s() -> float:
    usage: Any = resource.getrusage(resource.RUSAGE_SELF)
    return float(usage.ru_utime + usage.ru_stime)


if __name__ == "__main__":
    main()
