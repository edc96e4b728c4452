"""Exporter of a timeline for Perfetto, with one file per trial.

The files can be read by ui.perfetto.dev and by Perfetto's trace processor.

The files hold protobuf track events: every node is a process, and every activity of a node has a track. Perfetto calls
the JSON format legacy, and shows overlapping slices on one track wrongly. Times are virtual nanoseconds since training
began, on one clock for all nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from analysis.exports.activities import ACTIVITY_ORDER, NS_PER_S, count_overlapping_steps, split_steps_into_activities
from analysis.exports.base import Exporter
from analysis.metrics.event_outcomes import find_event_times
from analysis.reading.run_table import RunLogTables, TrialLogTables

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

SEQUENCE_ID = 1  # all packets come from the same writer, in order


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


@dataclass
class PerfettoTrace:
    """Perfetto trace of one trial, as a list of packets.

    Tracks are numbered from 1 in the order of their addition.
    """

    packets: list["TracePacket"] = field(default_factory=list)
    track_count: int = 0

    def encode(self) -> bytes:
        """Return the trace as bytes of a Perfetto file."""
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Message  # noqa: PLC0415 - an extra

        return bytes(Message(packet=self.packets).SerializeToString(deterministic=True))

    def add_process_track(self, name: str) -> int:
        """Add a track for a process, which is a group of tracks, and return the number of the track."""
        number = self._add_track_descriptor(name, None)
        descriptor = self.packets[-1].track_descriptor
        descriptor.process.pid = number
        descriptor.process.process_name = name
        descriptor.child_ordering = descriptor.EXPLICIT
        return number

    def add_track(self, name: str, parent_track: int) -> int:
        """Add a track for slices and instants, and return the number of the track."""
        return self._add_track_descriptor(name, parent_track)

    def add_counter_track(self, name: str, parent_track: int, unit: str = "") -> int:
        """Add a track for values over time (a counter), and return the number of the track."""
        number = self._add_track_descriptor(name, parent_track)
        self.packets[-1].track_descriptor.counter.unit_name = unit
        return number

    def add_slice(self, track_number: int, name: str, begin_ns: int, end_ns: int, **annotations: Any) -> None:
        """Add a slice (an event with a duration) to a track.

        Add the slices of a track in the order of their begin.
        """
        begin = self._add_event(track_number, begin_ns, "TYPE_SLICE_BEGIN")
        begin.name = name
        self._add_annotations(begin, annotations)
        self._add_event(track_number, end_ns, "TYPE_SLICE_END")

    def add_instant_event(self, track_number: int, name: str, time_ns: int, **annotations: Any) -> None:
        """Add an instant (an event without a duration) to a track."""
        event = self._add_event(track_number, time_ns, "TYPE_INSTANT")
        event.name = name
        self._add_annotations(event, annotations)

    def add_counter_value(self, track_number: int, time_ns: int, value: float) -> None:
        """Set the value of a counter track from the time `time_ns` on."""
        self._add_event(track_number, time_ns, "TYPE_COUNTER").double_counter_value = value

    def _add_track_descriptor(self, name: str, parent_track: int | None) -> int:
        self.track_count += 1
        packet = self._add_trace_packet(0)
        packet.track_descriptor.uuid = self.track_count
        packet.track_descriptor.name = name
        if parent_track is not None:
            packet.track_descriptor.parent_uuid = parent_track
            packet.track_descriptor.sibling_order_rank = self.track_count
        return self.track_count

    def _add_event(self, track_number: int, time_ns: int, event_type: str) -> Any:
        event = self._add_trace_packet(time_ns).track_event
        event.track_uuid = track_number
        event.type = event.Type.Value(event_type)
        return event

    def _add_trace_packet(self, time_ns: int) -> "TracePacket":
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket  # noqa: PLC0415 - an extra

        packet = TracePacket(timestamp=int(time_ns), trusted_packet_sequence_id=SEQUENCE_ID)
        if not self.packets:
            packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self.packets.append(packet)
        return packet

    @staticmethod
    def _add_annotations(event: Any, annotations: dict[str, Any]) -> None:
        for name, value in annotations.items():
            event.debug_annotations.add(name=name, int_value=int(value))


def _add_trial_to_trace(trial: TrialLogTables, trace: PerfettoTrace) -> Iterator[str]:
    """Add all data of a trial to a Perfetto trace.

    Yield a sentence for each part that the trace cannot represent.
    """
    _add_trial_wide_tracks(trial, trace)
    activities = split_steps_into_activities(trial.steps)
    for node_name, node_activities in activities.groupby("node", sort=False):
        process_track = trace.add_process_track(str(node_name))
        _add_activity_tracks(node_activities, process_track, trace)
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
            begin_ns = _seconds_to_ns(event.applied_s)
            trace.add_slice(track, event.kind, begin_ns, max(_seconds_to_ns(end_s), begin_ns))
    if trial.switch_record and trial.switch_record.committed:
        step = trial.switch_record.committed.get("step", 0)
        track = trace.add_track("switch", process_track)
        trace.add_instant_event(track, "switch", _seconds_to_ns(trial.switch_record.committed_s), step=step)


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
        trace.add_instant_event(track, f"worker-{worker}", _seconds_to_ns(at_s), version=version)
    staleness_track = trace.add_counter_track("staleness", process_track, "updates")
    _add_finite_counter_values(trace, staleness_track, updates["time_s"], updates["staleness"])


def _add_finite_counter_values(trace: PerfettoTrace, track: int, times_s: pd.Series, values: pd.Series) -> None:
    """Add values to a counter track at the given times.

    NaN and infinite values are left out.
    """
    for at_s, value in zip(times_s.astype(float), pd.to_numeric(values, errors="coerce"), strict=True):
        if np.isfinite(value):
            trace.add_counter_value(track, _seconds_to_ns(at_s), float(value))


def _seconds_to_ns(seconds: float) -> int:
    """Convert seconds since the begin of training to nanoseconds.

    Negative times become 0, because Perfetto has none. A time can be negative by some microseconds, because the clocks
    of nodes differ slightly.
    """
    return max(0, round(NS_PER_S * seconds))
