"""Protocol between the transport benchmark and its ranks: one JSON line per job on stdin, one per result on stdout."""

import asyncio
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any, Literal, TypeAlias, TypedDict

RankOperation: TypeAlias = Literal["sum", "pair", "beside"]


class RankJob(TypedDict):
    """Job of the ranks of one variant; all ranks receive the same job."""

    what: RankOperation
    size_bytes: int
    small_bytes: int  # largest vector that is summed by recursive doubling
    calls: int  # measured calls
    warm_ups: int  # calls before them that are not measured


class RankResult(TypedDict):
    """Result of a job at one rank."""

    seconds: float | None  # median wall seconds of a call; None if another rank measures them
    cpu_s: float  # mean CPU seconds of a call


async def serve_jobs(run_call: Callable[[RankJob], Awaitable[float | None]]) -> None:
    """Run the jobs that arrive on stdin until stdin ends, and print their results.

    Args:
        run_call: runs one call of a job; returns its seconds, or None if another rank measures them.
    """
    loop = asyncio.get_running_loop()
    _print_line("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        _print_line(json.dumps(await _run_job(json.loads(line), run_call)))


async def _run_job(job: RankJob, run_call: Callable[[RankJob], Awaitable[float | None]]) -> RankResult:
    for _ in range(job["warm_ups"]):
        await run_call(job)
    cpu_start_s = _cpu_s()
    calls_s = [await run_call(job) for _ in range(job["calls"])]
    measured_s = [seconds for seconds in calls_s if seconds is not None]
    return {"seconds": median(measured_s) if measured_s else None, "cpu_s": (_cpu_s() - cpu_start_s) / job["calls"]}


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the bench reads it


def _cpu_s() -> float:
    usage: Any = resource.getrusage(resource.RUSAGE_SELF)
    return float(usage.ru_utime + usage.ru_stime)
