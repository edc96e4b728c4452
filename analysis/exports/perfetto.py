"""Exporter of a timeline for Perfetto, with one file per trial.

The files can be read by ui.perfetto.dev and by Perfetto's trace processor.

The files hold protobuf track events: every node is a process, and every activity of a node has a track. Perfetto calls
the JSON format legacy, and shows overlapping slices on one track wrongly. Times are virtual nanoseconds since training
began, on one clock for all nodes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from analysis.exports.activities import ACTIVITY_ORDER, count_overlapping_steps, split_steps_into_activities
from analysis.exports.base import Exporter
from analysis.exports.perfetto_trace import PerfettoTrace, seconds_to_ns
from analysis.metrics.event_outcomes import find_event_times
from analysis.reading.logs.bucket_exchanges import ARRAY_SEPARATOR
from analysis.reading.run_table import RunLogTables, TrialLogTables


class PerfettoExporter(Exporter):
    """Exporter of Perfetto traces of trials.

    Activities of nodes are slices, metrics are counters, and model updates are instants.
    """

    kind: Literal["perfetto"] = "perfetto"
    tool_name: ClassVar[str] = "Perfetto"
    file_suffix: ClassVar[str] = ".pftrace"
    pip_requirement: ClassVar[str] = "perfetto>=0.59"

    def write(self, run_tables: RunLogTables, out_folder: Path) -> Iterator[str]:
        for trial in run_tables.trials:
            trace = PerfettoTrace()
            yield from (f"{trial.plan.trial}: {omission}" for omission in _add_trial_to_trace(trial, trace))
            (out_folder / f"{trial.plan.trial}{self.file_suffix}").write_bytes(trace.encode())


def _add_trial_to_trace(trial: TrialLogTables, trace: PerfettoTrace) -> Iterator[str]:
    """Add all data of a trial to a Perfetto trace.

    Yield a sentence for each part that the trace cannot represent.
    """
    _add_trial_wide_tracks(trial, trace)
    activities = split_steps_into_activities(trial.steps)
    for node_name, node_activities in activities.groupby("node", sort=False):
        process_track = trace.add_process_track(str(node_name))
        _add_activity_tracks(node_activities, process_track, trace)
        _add_bucket_track(trial.buckets[trial.buckets["node"] == node_name], process_track, trace)
        _add_training_loss_track(trial.steps[trial.steps["node"] == node_name], process_track, trace)
    _add_server_updates(trial, trace)
    if count := count_overlapping_steps(trial.steps):
        yield f"in {count} steps, the phases together are longer than the step; they end where the next step begins"
    if losses := int((~np.isfinite(trial.steps["loss"].astype(float))).sum()):
        yield f"{losses} losses are NaN or infinite, and are not in the counters"


def _add_trial_wide_tracks(trial: TrialLogTables, trace: PerfettoTrace) -> None:
    """Add the tracks of a Perfetto trace that belong to no single node.

    These tracks show evaluations, planned events and the strategy switch.
    """
    process_track = trace.add_process_track(f"trial {trial.plan.trial}")
    for metric, evaluations in trial.evals.groupby("metric", sort=False):
        counter_track = trace.add_counter_track(f"eval {metric}", process_track)
        _add_finite_counter_values(trace, counter_track, evaluations["time_s"], evaluations["value"])
    for event in find_event_times(trial):
        if event.applied_s is not None:
            track = trace.add_track(f"event {event.number}: {event.kind} {' '.join(event.nodes)}", process_track)
            end_s = event.ended_s if event.ended_s is not None else trial.seconds or event.applied_s
            begin_ns = seconds_to_ns(event.applied_s)
            trace.add_slice(track, event.kind, begin_ns, max(seconds_to_ns(end_s), begin_ns))
    if trial.switch_record and trial.switch_record.committed:
        step = trial.switch_record.committed.get("step", 0)
        track = trace.add_track("switch", process_track)
        trace.add_instant_event(track, "switch", seconds_to_ns(trial.switch_record.committed_s), step=step)


def _add_activity_tracks(activities: pd.DataFrame, process_track: int, trace: PerfettoTrace) -> None:
    """Add one track per activity of a node, such as compute, to a Perfetto trace.

    Every step is a slice of a track.
    """
    for activity in ACTIVITY_ORDER:
        rows = activities[activities["activity"] == activity]
        if rows.empty:
            continue
        track = trace.add_track(activity, process_track)
        for begin, end, step in zip(rows["begin_ns"], rows["end_ns"], rows["step"], strict=True):
            trace.add_slice(track, activity, begin, end, step=step)


def _add_bucket_track(bucket_rows: pd.DataFrame, process_track: int, trace: PerfettoTrace) -> None:
    """Add a track with the exchanges of a node's gradient buckets, if any overlapped with its compute.

    Every exchanged part of a bucket is a slice. Unlike activities, it has the begin and the end that the node logged.
    """
    if bucket_rows.empty:
        return
    track = trace.add_track("exchange of buckets", process_track)
    columns = (bucket_rows[name] for name in ("step", "bucket", "part", "bytes_sent", "arrays", "begin_s", "end_s"))
    for step, bucket, part, bytes_sent, arrays, begin_s, end_s in zip(*columns, strict=True):
        name, numbers = f"bucket {bucket}{_shorten_array_names(arrays)}", {"step": step, "bucket": bucket, "part": part}
        times_ns = seconds_to_ns(begin_s), seconds_to_ns(end_s)
        trace.add_slice(track, name, *times_ns, **numbers, bytes=bytes_sent, arrays=arrays)


def _shorten_array_names(names: str) -> str:
    """Return the first and the last name of a bucket's arrays, to follow its number; empty if they are not known."""
    first, *others = names.split(ARRAY_SEPARATOR)
    last = f" … {others[-1]}" if others else ""
    return f": {first}{last}" if first else ""


def _add_training_loss_track(step_rows: pd.DataFrame, process_track: int, trace: PerfettoTrace) -> None:
    """Add a counter track with the training loss of a node.

    The loss of every step is placed at the end of the step.
    """
    sorted_steps = step_rows.sort_values("start_s", kind="stable")
    ends_s = sorted_steps["start_s"] + sorted_steps["step_s"]
    _add_finite_counter_values(trace, trace.add_counter_track("loss", process_track), ends_s, sorted_steps["loss"])


def _add_server_updates(trial: TrialLogTables, trace: PerfettoTrace) -> None:
    """Add the model updates of the first server to a Perfetto trace.

    Updates are instants. The staleness of their gradients is a counter.
    """
    if trial.updates.empty:
        return
    process_track = trace.add_process_track(f"{trial.plan.shard_owners[0]} (shard 0)")
    track = trace.add_track("update", process_track)
    updates = trial.updates.sort_values("time_s", kind="stable")
    for at_s, version, worker in zip(updates["time_s"], updates["version"], updates["worker"], strict=True):
        trace.add_instant_event(track, f"worker-{worker}", seconds_to_ns(at_s), version=version)
    staleness_track = trace.add_counter_track("staleness", process_track, "updates")
    _add_finite_counter_values(trace, staleness_track, updates["time_s"], updates["staleness"])


def _add_finite_counter_values(trace: PerfettoTrace, track: int, times_s: pd.Series, values: pd.Series) -> None:
    """Add values to a counter track at the given times.

    NaN and infinite values are left out.
    """
    for at_s, value in zip(times_s.astype(float), pd.to_numeric(values, errors="coerce"), strict=True):
        if np.isfinite(value):
            trace.add_counter_value(track, seconds_to_ns(at_s), float(value))
