"""Perfetto trace: a list of protobuf packets of tracks, slices, instants and counters."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.exports.activities import NS_PER_S

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

SEQUENCE_ID = 1  # all packets come from the same writer, in order


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
            typed = {"string_value": value} if isinstance(value, str) else {"int_value": int(value)}
            event.debug_annotations.add(name=name, **typed)


def seconds_to_ns(seconds: float) -> int:
    """Convert seconds since the begin of training to nanoseconds.

    Negative times become 0, because Perfetto has none. A time can be negative by some microseconds, because the clocks
    of nodes differ slightly.
    """
    return max(0, round(NS_PER_S * seconds))
