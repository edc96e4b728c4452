"""Connections and messages that nodes refused, and messages that an event corrupted, as the nodes logged them.

Times are virtual seconds since the event `run_start`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from analysis.reading.logs.mllog import MllogEvent, NodeLog

ProblemKind = Literal["refused", "corrupted"]


@dataclass(frozen=True)
class MessageProblem:
    """Refused connection or message, or corrupted message. The names of the fields are keys in summary.json."""

    node: str  # that refused it, or receiver of the corrupted message
    sender: str  # of a refused connection: the name that the other process claimed; empty if it claimed none
    time_s: float
    kind: ProblemKind
    reason: str
    is_detected: bool  # false for a corrupted message without an authentication tag: its receiver uses it


def read_message_problems(log_by_node_name: Mapping[str, NodeLog], start_s: float) -> tuple[MessageProblem, ...]:
    """Return refused connections and corrupted messages in the order of time; `start_s` is the time of `run_start`."""
    problems = [
        *_read_rejections(log_by_node_name, start_s),
        *_read_corruptions(log_by_node_name, start_s),
    ]
    return tuple(sorted(problems, key=lambda each: (each.time_s, each.node, each.sender)))


def _read_rejections(log_by_node_name: Mapping[str, NodeLog], start_s: float) -> Iterator[MessageProblem]:
    for node_name, log in log_by_node_name.items():
        for event in log.events_with_key("refused_connection"):
            sender, reason = str(event.value.get("claimed_sender", "")), str(event.value.get("reason", ""))
            yield MessageProblem(node_name, sender, event.time_ms / 1000 - start_s, "refused", reason, is_detected=True)


def _read_corruptions(log_by_node_name: Mapping[str, NodeLog], start_s: float) -> Iterator[MessageProblem]:
    for node_name, log in log_by_node_name.items():
        for event in log.events_with_key("message_corrupted"):
            yield MessageProblem(
                node=str(event.value.get("receiver", "")),
                sender=node_name,
                time_s=event.time_ms / 1000 - start_s,
                kind="corrupted",
                reason=_describe_corruption(event),
                is_detected=bool(event.value.get("is_detectable", False)),
            )


def _describe_corruption(event: MllogEvent) -> str:
    """Return what was changed, such as "2 bits flipped in a message PUSH of 1024 bytes"."""
    bits, kind = event.value.get("flipped_bits"), event.value.get("message_kind", "")
    bit_count = len(bits) if isinstance(bits, list) else 0
    size = f"{event.value.get('payload_bytes', 0)} bytes"
    return f"{bit_count} bit{'s' * (bit_count != 1)} flipped in a message {kind} of {size}"
