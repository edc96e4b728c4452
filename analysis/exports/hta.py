"""Exporter of traces for Holistic Trace Analysis (HTA, Meta), one file per rank.

HTA reads GPU traces of PyTorch's profiler. An exported trace contains the minimum that HTA needs:

- the rank (`distributedInfo.rank`),
- kernels with a stream and a correlation id,
- a launch event per kernel with the same correlation id,
- communication kernels with NCCL's names.

HTA counts communication that overlaps with computing as computing, and time without kernels as idle.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import pandas as pd

from analysis.exports.activities import NS_PER_S, sort_steps_by_rank, split_steps_into_activities
from analysis.exports.base import Exporter
from analysis.reading.run_table import RunLogTables, TrialLogTables

NS_PER_US = 1000
HOST_PROCESS_ID, HOST_THREAD_ID, DEVICE_ID = 1000, 1, 0  # as in profilers' traces
# Large, because HTA stores row numbers in the column of correlation ids, in integers of the same width.
FIRST_CORRELATION_ID = 1_000_000
LAUNCH_EVENT = {"cat": "cuda_runtime", "name": "cudaLaunchKernel"}


class TraceGpuKernel(NamedTuple):
    """Name and stream of a GPU kernel that represents an activity in a trace."""

    name: str
    stream: int


KERNEL_OF_ACTIVITY = {
    "compute": TraceGpuKernel("compute", 7),
    "update": TraceGpuKernel("update", 7),
    # HTA recognises communication kernels by `nccl…Kernel`, but finds stragglers only by `ncclKernel…`: stragglers are
    # the ranks whose communication kernels begin last. A wait is part of the kernel, because NCCL's kernels wait for
    # other ranks while they run.
    "wait": TraceGpuKernel("ncclKernel_exchange", 20),
    "exchange": TraceGpuKernel("ncclKernel_exchange", 20),
}  # without "data": the device is idle while data are read
EXCHANGE_KERNEL = KERNEL_OF_ACTIVITY["exchange"]


class HtaExporter(Exporter):
    """Exporter for Holistic Trace Analysis (HTA), with one folder per trial.

    Compute and update are kernels of one stream; wait and exchange are kernels of another stream. An exchange that
    overlaps with compute has one kernel per exchanged part of a gradient bucket.
    """

    kind: Literal["hta"] = "hta"
    tool_name: ClassVar[str] = "Holistic Trace Analysis"
    file_suffix: ClassVar[str] = ".json.gz"

    def write(self, run_tables: RunLogTables, out_folder: Path) -> Iterator[str]:
        for trial in run_tables.trials:
            for omission in self._write_trial(trial, out_folder / trial.plan.trial):
                yield f"{trial.plan.trial}: {omission}"

    def _write_trial(self, trial: TrialLogTables, folder: Path) -> Iterator[str]:
        activities = split_steps_into_activities(trial.steps)
        for rank in range(trial.plan.workers):
            steps = sort_steps_by_rank(trial.steps[trial.steps["rank"] == rank])
            rank_activities = activities[activities["rank"] == rank]
            if not rank_activities["activity"].isin(KERNEL_OF_ACTIVITY).any():
                yield f"rank {rank} is left out: no activity took any time, and HTA cannot read empty traces"
                continue
            folder.mkdir(exist_ok=True)  # only for ranks with a trace: some programs fail on an empty folder
            buckets = trial.buckets[trial.buckets["node"].isin(set(steps["node"]))]
            kernels = _place_bucket_exchanges(_merge_activities_into_kernels(rank_activities), buckets)
            trace = _build_hta_trace_of_worker(rank, trial.plan.workers, steps, kernels)
            # The JSON has blanks after colons, because HTA searches for `"rank": `.
            compressed = gzip.compress(json.dumps(trace).encode(), mtime=0)
            (folder / f"rank-{rank}{self.file_suffix}").write_bytes(compressed)
        if trial.plan.servers:
            yield "servers are left out: HTA supports only ranks that compute"


def _build_hta_trace_of_worker(
    worker_rank: int, world_size: int, step_table: pd.DataFrame, kernels: pd.DataFrame
) -> dict[str, Any]:
    """Return the trace of one worker (rank) for Holistic Trace Analysis.

    The trace is an object to be written as JSON.

    Times are whole microseconds since training began, because HTA rounds fractions of begin and end differently.
    """
    begins, ends = _round_to_us(kernels["begin_ns"]), _round_to_us(kernels["end_ns"])
    events = [
        _step_trace_event(step, begin_s, step_s) for step, begin_s, step_s in _step_starts_and_durations(step_table)
    ]
    kernel_times = zip(kernels["kernel"], begins, ends, strict=True)
    for correlation_id, (kernel, begin, end) in enumerate(kernel_times, start=FIRST_CORRELATION_ID):
        if end > begin:
            events.extend(_kernel_trace_events(correlation_id, kernel, begin, end - begin))
    distributed_info = {"backend": "nccl", "rank": worker_rank, "world_size": world_size}
    return {"schemaVersion": 1, "distributedInfo": distributed_info, "traceEvents": events}


def _merge_activities_into_kernels(activity_table: pd.DataFrame) -> pd.DataFrame:
    """Merge the activities of a worker into GPU kernels, and return one table row per kernel.

    In each step, waiting for and exchanging data form one kernel.
    """
    kernels = activity_table[activity_table["activity"].isin(KERNEL_OF_ACTIVITY)]
    kernels = kernels.assign(kernel=kernels["activity"].map(KERNEL_OF_ACTIVITY))
    return kernels.groupby(["step", "kernel"], sort=False).agg({"begin_ns": "min", "end_ns": "max"}).reset_index()


def _place_bucket_exchanges(kernels: pd.DataFrame, bucket_rows: pd.DataFrame) -> pd.DataFrame:
    """Replace the exchange kernels of a worker's steps by the exchanges of its gradient buckets, where it logged any.

    Kernels of buckets have the begin and the end that the worker logged, and overlap with its compute.
    """
    if bucket_rows.empty:
        return kernels
    is_replaced = kernels["kernel"].isin([EXCHANGE_KERNEL]) & kernels["step"].isin(bucket_rows["step"])
    times_ns = {f"{edge}_ns": (NS_PER_S * bucket_rows[f"{edge}_s"]).clip(lower=0) for edge in ("begin", "end")}
    exchanges = pd.DataFrame({"step": bucket_rows["step"], "kernel": [EXCHANGE_KERNEL] * len(bucket_rows), **times_ns})
    return pd.concat([kernels[~is_replaced], exchanges]).sort_values("begin_ns", kind="stable")


def _round_to_us(nanoseconds: pd.Series) -> list[int]:
    return [int(value) for value in (nanoseconds + NS_PER_US // 2) // NS_PER_US]


def _step_starts_and_durations(step_table: pd.DataFrame) -> Iterator[tuple[int, float, float]]:
    return zip(
        step_table["step"].astype(int),
        step_table["start_s"].astype(float),
        step_table["step_s"].astype(float),
        strict=True,
    )


def _step_trace_event(step: int, begin_s: float, duration_s: float) -> dict[str, Any]:
    """Return the trace event that marks begin and end of a training step on the track of the host."""
    begin, end = round(1e6 * begin_s), round(1e6 * (begin_s + duration_s))
    label = {"cat": "user_annotation", "name": f"ProfilerStep#{step}"}
    return _make_complete_event(label, HOST_PROCESS_ID, HOST_THREAD_ID, begin, end)


def _kernel_trace_events(
    correlation_id: int, kernel: TraceGpuKernel, begin_us: int, duration_us: int
) -> list[dict[str, Any]]:
    """Return two trace events: the launch of a kernel on the host, and the kernel on the device."""
    launch_args = {"correlation": correlation_id}
    launch = _make_complete_event(LAUNCH_EVENT, HOST_PROCESS_ID, HOST_THREAD_ID, begin_us, begin_us, launch_args)
    kernel_args = {"device": DEVICE_ID, "stream": kernel.stream, "correlation": correlation_id}
    label = {"cat": "kernel", "name": kernel.name}
    return [
        launch,
        _make_complete_event(label, DEVICE_ID, kernel.stream, begin_us, begin_us + duration_us, kernel_args),
    ]


def _make_complete_event(
    label: dict[str, str],
    process_id: int,
    thread_id: int,
    begin_us: int,
    end_us: int,
    event_args: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Return an event of type "complete" in the Trace Event format.

    Such an event has a begin and a duration, in microseconds.
    """
    times = {"ts": begin_us, "dur": end_us - begin_us}
    return {"ph": "X", **label, "pid": process_id, "tid": thread_id, **times, "args": event_args or {}}
