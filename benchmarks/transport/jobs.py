"""How does a rank hear what to do? A line in is a job, a line out is what a call took, in seconds, and its CPU time."""

import asyncio
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any, Literal, TypeAlias, TypedDict

What: TypeAlias = Literal["sum", "pair", "beside"]


class Job(TypedDict):
    """The same for all ranks of a group."""

    what: What
    size_bytes: int
    small_bytes: int  # up to here a sum is one by recursive doubling
    calls: int
    warm_ups: int


class Answer(TypedDict):
    """Medians of one rank; None where it only helps others to measure."""

    seconds: float | None
    cpu_s: float


async def serve(call: Callable[[Job], Awaitable[float | None]]) -> None:
    """Do jobs until the input ends; `call` returns the seconds that one call took here, if they count."""
    loop = asyncio.get_running_loop()
    _say("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        _say(json.dumps(await _done(json.loads(line), call)))


async def _done(job: Job, call: Callable[[Job], Awaitable[float | None]]) -> Answer:
    for _ in range(job["warm_ups"]):
        await call(job)
    before = _cpu_s()
    taken = [await call(job) for _ in range(job["calls"])]
    counted = [seconds for seconds in taken if seconds is not None]
    return {"seconds": median(counted) if counted else None, "cpu_s": (_cpu_s() - before) / job["calls"]}


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the bench reads it


def _cpu_s() -> float:
    usage: Any = resource.getrusage(resource.RUSAGE_SELF)
    return float(usage.ru_utime + usage.ru_stime)
