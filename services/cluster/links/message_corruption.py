"""Corruption of messages: the event that declares it, and the bits that flip in the next message of a node."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from services.cluster.declared_event import DeclaredEvent, EventApplier
from services.schema.component import FrozenRecord
from services.schema.units import Duration

MAX_FLIPPED_BITS = 64


class MessageCorruption(DeclaredEvent):
    """Corruption of the next message with a payload that each of some nodes sends: bits of the payload flip.

    The bits flip after the sender has computed the authentication tag of the message, so that the receiver sees the
    same bytes as after a change on the wire.
    """

    kind: Literal["corrupt"] = "corrupt"
    of: tuple[str, ...] = Field(min_length=1, description="names of the sending nodes: workers or servers")
    bits: Annotated[int, Field(ge=1, le=MAX_FLIPPED_BITS)] = Field(
        1, description="number of bits of the payload that flip, at random places"
    )

    applied_by: ClassVar[EventApplier] = "transport"
    changes_times: ClassVar[bool] = False

    @property
    def lasts(self) -> Duration:
        """Return 0 s: each node corrupts one message."""
        return Duration(0.0)


class CorruptedMessage(FrozenRecord):
    """Message in which bits were flipped: its receiver and kind, the size of its payload, and places in the payload."""

    receiver: str
    message_kind: str
    payload_bytes: int
    flipped_bits: tuple[int, ...]  # numbers of the bits from the start of the payload, in ascending order


@dataclass(frozen=True)
class PendingCorruption:
    """Corruption of the next message of a node."""

    bits: int  # that flip; all of a payload that has fewer
    random: Random  # draws their places
    record: Callable[[CorruptedMessage], None]  # is called when a message was corrupted


@dataclass
class MessageCorruptor:
    """Flips bits in messages of one node, one message for each pending corruption."""

    _pending: deque[PendingCorruption] = field(default_factory=deque)

    def corrupt_next_message(self, corruption: PendingCorruption) -> None:
        """Corrupt the next message with a payload that has no earlier pending corruption."""
        self._pending.append(corruption)

    def flip_bits(self, receiver: str, message_kind: str, payload: bytes | memoryview) -> bytes | memoryview:
        """Return the payload of a message as it arrives at its receiver.

        The result is the same object unless a corruption is pending. The sender's payload does not change.
        """
        bit_count = 8 * memoryview(payload).nbytes
        if not self._pending or not bit_count:
            return payload
        corruption = self._pending.popleft()
        places = sorted(corruption.random.sample(range(bit_count), min(corruption.bits, bit_count)))
        corrupted = bytearray(payload)
        for place in places:
            corrupted[place // 8] ^= 1 << place % 8
        corruption.record(
            CorruptedMessage(
                receiver=receiver, message_kind=message_kind, payload_bytes=bit_count // 8, flipped_bits=tuple(places)
            )
        )
        return bytes(corrupted)
