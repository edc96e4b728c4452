"""Traces for Holistic Trace Analysis (Meta), which reads what PyTorch's profiler writes of GPUs: a file per rank.

What it asks of a trace is the minimum that makes its analyses work: `distributedInfo.rank`, kernels with a stream and
a correlation, a launch per kernel with the same correlation, and communication that is named as NCCL names it.
HTA books communication that computing hides as computing, and time without any kernel as idle.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import pandas as pd

from analysis.exports.activities import activities, by_step
from analysis.exports.base import Exporter
from analysis.reading.run_table import RunTable, TrialTable

US_NS = 1000
HOST_PROCESS, HOST_THREAD, DEVICE = 1000, 1, 0  # as profilers number them: a process and its thread, a GPU
FIRST = 1_000_000  # of correlations: HTA puts row numbers where they stood, in integers as wide as they were
LAUNCH = {"cat": "cuda_runtime", "name": "cudaLaunchKernel"}


class Kernel(NamedTuple):
    """How an activity is told to HTA."""

    name: str
    stream: int


KERNELS = {
    "compute": Kernel("compute", 7),
    "update": Kernel("update", 7),
    # HTA knows communication by `nccl…Kernel`, and looks for stragglers in `ncclKernel…` alone: those begin last.
    "wait": Kernel("ncclKernel_exchange", 20),  # as NCCL's kernels wait for other ranks from within
    "exchange": Kernel("ncclKernel_exchange", 20),
}  # reading data keeps no device busy: it is idle time


class Hta(Exporter):
    """A folder per trial: computing and updating as kernels of one stream, exchanges and their waits as another's."""

    kind: Literal["hta"] = "hta"
    reader: ClassVar[str] = "Holistic Trace Analysis"
    suffix: ClassVar[str] = ".json.gz"

    def write(self, run: RunTable, out: Path) -> Iterator[str]:
        for trial in run.trials:
            yield from (f"{trial.plan.trial}: {sentence}" for sentence in self._write(trial, out / trial.plan.trial))

    def _write(self, trial: TrialTable, folder: Path) -> Iterator[str]:
        moves = activities(trial.steps)
        for rank in range(trial.plan.workers):
            steps, mine = by_step(trial.steps[trial.steps["rank"] == rank]), moves[moves["rank"] == rank]
            if not mine["activity"].isin(KERNELS).any():
                yield f"rank {rank}: nothing that took time was logged, and HTA reads no empty trace; no file"
                continue
            folder.mkdir(exist_ok=True)  # an empty one would stop whoever reads one after the other
            trace = _trace(rank, trial.plan.workers, steps, mine)
            packed = gzip.compress(json.dumps(trace).encode(), mtime=0)  # HTA looks for the rank by its blank
            (folder / f"rank-{rank}{self.suffix}").write_bytes(packed)
        if trial.plan.servers:
            yield "servers: HTA knows ranks that compute, and nothing else"


def _trace(rank: int, ranks: int, steps: pd.DataFrame, moves: pd.DataFrame) -> dict[str, Any]:
    """One rank's trace; times are whole microseconds since training began (HTA rounds others, each end its own way)."""
    done = _kernels(moves)
    begins, ends = _us(done["begin_ns"]), _us(done["end_ns"])
    events = [_annotation(step, begin_s, step_s) for step, begin_s, step_s in _each(steps)]
    for number, (kernel, begin, end) in enumerate(zip(done["kernel"], begins, ends, strict=True), start=FIRST):
        if end > begin:
            events.extend(_kernel(number, kernel, begin, end - begin))
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "traceEvents": events,
    }


def _kernels(moves: pd.DataFrame) -> pd.DataFrame:
    """One row per kernel: waiting and the exchange that it is for are one."""
    done = moves[moves["activity"].isin(KERNELS)]
    done = done.assign(kernel=done["activity"].map(KERNELS))
    return done.groupby(["step", "kernel"], sort=False).agg({"begin_ns": "min", "end_ns": "max"}).reset_index()


def _us(nanoseconds: pd.Series) -> list[int]:
    return [int(value) for value in (nanoseconds + US_NS // 2) // US_NS]


def _each(steps: pd.DataFrame) -> Iterator[tuple[int, float, float]]:
    return zip(steps["step"].astype(int), steps["start_s"].astype(float), steps["step_s"].astype(float), strict=True)


def _annotation(step: int, begin_s: float, step_s: float) -> dict[str, Any]:
    """Which step it is, on the host's track."""
    begin, end = round(1e6 * begin_s), round(1e6 * (begin_s + step_s))
    return _event({"cat": "user_annotation", "name": f"ProfilerStep#{step}"}, HOST_PROCESS, HOST_THREAD, begin, end)


def _kernel(number: int, kernel: Kernel, begin: int, duration: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A kernel and its launch."""
    launched = {"correlation": number}
    launch = _event(LAUNCH, HOST_PROCESS, HOST_THREAD, begin, begin, launched)
    on = {"device": DEVICE, "stream": kernel.stream, "correlation": number}
    what = {"cat": "kernel", "name": kernel.name}
    return launch, _event(what, DEVICE, kernel.stream, begin, begin + duration, on)


def _event(
    what: dict[str, str], process: int, thread: int, begin: int, end: int, args: dict[str, int] | None = None
) -> dict[str, Any]:
    """A complete event of the Trace Event format; microseconds."""
    return {"ph": "X", **what, "pid": process, "tid": thread, "ts": begin, "dur": end - begin, "args": args or {}}
