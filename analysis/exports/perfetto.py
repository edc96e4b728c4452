"""A timeline for Perfetto (ui.perfetto.dev, trace processor): one file per trial, one clock for all of its nodes.

Protobuf track events: every node is a process, every activity a track of its own. (Perfetto calls the JSON format
legacy, and shows slices that share a track and overlap wrongly.) Times are virtual nanoseconds since training began.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from analysis.exports.activities import NS, ORDER, activities, overfull
from analysis.exports.base import Exporter
from analysis.metrics.happened import event_outcomes
from analysis.reading.run_table import RunTable, TrialTable

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

SEQUENCE = 1  # all packets come from one writer, in order


class Perfetto(Exporter):
    """Activities as slices, losses, evaluations and staleness as counters, updates as instants."""

    kind: Literal["perfetto"] = "perfetto"
    reader: ClassVar[str] = "Perfetto"
    suffix: ClassVar[str] = ".pftrace"
    package: ClassVar[str] = "export"

    def write(self, run: RunTable, out: Path) -> Iterator[str]:
        for trial in run.trials:
            trace = Trace()
            yield from (f"{trial.plan.trial}: {sentence}" for sentence in _tell(trial, trace))
            (out / f"{trial.plan.trial}{self.suffix}").write_bytes(trace.encoded())


@dataclass
class Trace:
    """Packets of one trace; tracks are numbered as they are added."""

    packets: list["TracePacket"] = field(default_factory=list)
    tracks: int = 0

    def encoded(self) -> bytes:
        """The file."""
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Message  # noqa: PLC0415 - an extra

        return bytes(Message(packet=self.packets).SerializeToString(deterministic=True))

    def process(self, name: str) -> int:
        """A new group of tracks; its number."""
        number = self._track(name, None)
        descriptor = self.packets[-1].track_descriptor
        descriptor.process.pid = number
        descriptor.process.process_name = name
        descriptor.child_ordering = descriptor.EXPLICIT
        return number

    def track(self, name: str, parent: int) -> int:
        """A new track for slices and instants; its number."""
        return self._track(name, parent)

    def counter(self, name: str, parent: int, unit: str = "") -> int:
        """A new track for numbers over time; its number."""
        number = self._track(name, parent)
        self.packets[-1].track_descriptor.counter.unit_name = unit
        return number

    def slice(self, track: int, name: str, begin_ns: int, end_ns: int, **facts: Any) -> None:
        """Something that lasts; slices of one track come in the order of their begin."""
        begin = self._event(track, begin_ns, "TYPE_SLICE_BEGIN")
        begin.name = name
        self._annotate(begin, facts)
        self._event(track, end_ns, "TYPE_SLICE_END")

    def instant(self, track: int, name: str, at_ns: int, **facts: Any) -> None:
        """Something that happens at once."""
        event = self._event(track, at_ns, "TYPE_INSTANT")
        event.name = name
        self._annotate(event, facts)

    def count(self, track: int, at_ns: int, value: float) -> None:
        """What a counter shows from now on."""
        self._event(track, at_ns, "TYPE_COUNTER").double_counter_value = value

    def _track(self, name: str, parent: int | None) -> int:
        self.tracks += 1
        packet = self._packet(0)
        packet.track_descriptor.uuid = self.tracks
        packet.track_descriptor.name = name
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
            packet.track_descriptor.sibling_order_rank = self.tracks
        return self.tracks

    def _event(self, track: int, at_ns: int, kind: str) -> Any:
        event = self._packet(at_ns).track_event
        event.track_uuid = track
        event.type = event.Type.Value(kind)
        return event

    def _packet(self, at_ns: int) -> "TracePacket":
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket  # noqa: PLC0415 - an extra

        packet = TracePacket(timestamp=int(at_ns), trusted_packet_sequence_id=SEQUENCE)
        if not self.packets:
            packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self.packets.append(packet)
        return packet

    @staticmethod
    def _annotate(event: Any, facts: dict[str, Any]) -> None:
        for name, value in facts.items():
            event.debug_annotations.add(name=name, int_value=int(value))


def _tell(trial: TrialTable, trace: Trace) -> Iterator[str]:
    """The whole trial; gives what it can't tell."""
    _tell_trial(trial, trace)
    moves = activities(trial.steps)
    for node, done in moves.groupby("node", sort=False):
        process = trace.process(str(node))
        _tell_activities(done, process, trace)
        steps = trial.steps[trial.steps["node"] == node]
        _tell_losses(steps, process, trace)
    _tell_updates(trial, trace)
    if count := overfull(trial.steps):
        yield f"phases of {count} steps together last longer than the step; they are cut where the next step begins"
    if losses := int((~np.isfinite(trial.steps["loss"].astype(float))).sum()):
        yield f"{losses} losses are no numbers and not in the counters"


def _tell_trial(trial: TrialTable, trace: Trace) -> None:
    """What concerns no single node: evaluations, events of the timeline, a switch."""
    process = trace.process(f"trial {trial.plan.trial}")
    for metric, found in trial.evals.groupby("metric", sort=False):
        _numbers(trace, trace.counter(f"eval {metric}", process), found["time_s"], found["value"])
    for event in event_outcomes(trial):
        if event.applied_s is not None:
            track = trace.track(f"event {event.number}: {event.kind} {' '.join(event.nodes)}", process)
            end_s = event.ended_s if event.ended_s is not None else trial.seconds or event.applied_s
            trace.slice(track, event.kind, _ns(event.applied_s), max(_ns(end_s), _ns(event.applied_s)))
    if trial.switch_record and trial.switch_record.committed:
        step = trial.switch_record.committed.get("step", 0)
        trace.instant(trace.track("switch", process), "switch", _ns(trial.switch_record.committed_s), step=step)


def _tell_activities(done: pd.DataFrame, process: int, trace: Trace) -> None:
    """A track per activity, in the order in which they come in a step."""
    for activity in ORDER:
        mine = done[done["activity"] == activity]
        if mine.empty:
            continue
        track = trace.track(activity, process)
        for begin, end, step in zip(mine["begin_ns"], mine["end_ns"], mine["step"], strict=True):
            trace.slice(track, activity, begin, end, step=step)


def _tell_losses(steps: pd.DataFrame, process: int, trace: Trace) -> None:
    """What the batch of a step had lost is known at its end."""
    in_order = steps.sort_values("start_s", kind="stable")
    _numbers(trace, trace.counter("loss", process), in_order["start_s"] + in_order["step_s"], in_order["loss"])


def _tell_updates(trial: TrialTable, trace: Trace) -> None:
    """What the first shard did with gradients, and how old they were."""
    if trial.updates.empty:
        return
    process = trace.process(f"{trial.plan.shard_owners[0]} (shard 0)")
    track = trace.track("update", process)
    updates = trial.updates.sort_values("time_s", kind="stable")
    for at_s, version, worker in zip(updates["time_s"], updates["version"], updates["worker"], strict=True):
        trace.instant(track, f"worker-{worker}", _ns(at_s), version=version)
    _numbers(trace, trace.counter("staleness", process, "updates"), updates["time_s"], updates["staleness"])


def _numbers(trace: Trace, track: int, times_s: pd.Series, values: pd.Series) -> None:
    """Every finite value at its time."""
    for at_s, value in zip(times_s.astype(float), pd.to_numeric(values, errors="coerce"), strict=True):
        if np.isfinite(value):
            trace.count(track, _ns(at_s), float(value))


def _ns(seconds: float) -> int:
    """Stamps of other nodes' clocks may lie some microseconds before training began; Perfetto knows no such time."""
    return max(0, round(NS * seconds))
