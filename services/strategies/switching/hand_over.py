"""What do the two sides of a hand-over have in common? Digests of what they hold, and the vectors that travel."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from services.learning.layout import VectorRange
from services.runtime.clock import Clock
from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import receive_remaining_pieces, vector_messages
from services.schema.arrays import HostArray
from services.schema.errors import DeadlineExceeded


@dataclass(frozen=True)
class HandOverLimit:
    """How long a node takes part in a hand-over: when the coordinator has given up, so have all.

    The coordinator counts from the first node that stops, and nobody stops before that.
    """

    clock: Clock
    seconds: float  # virtual

    @property
    def ends(self) -> float:
        """The moment up to which a node takes part that stops now."""
        return self.clock.now() + self.seconds

    @asynccontextmanager
    async def until(self, ends: float) -> AsyncIterator[None]:
        """End what gives or takes here: a message to a node that is cut off waits without end.

        Raises:
            DeadlineExceeded: it was not through.
        """
        try:
            async with asyncio.timeout(self.clock.to_wall_s(max(0.0, ends - self.clock.now()))):
                yield
        except TimeoutError:
            raise DeadlineExceeded(f"the hand-over was not through within {self.seconds:g} s") from None


def digest(vectors: Sequence[HostArray], updates: int | None = None) -> str:
    """SHA-256 of some vectors; of an optimiser's state together with the updates that it counts."""
    found = hashlib.sha256(b"" if updates is None else str(updates).encode())
    for vector in vectors:
        found.update(np.ascontiguousarray(vector).tobytes())
    return found.hexdigest()


def digests(ranges: Sequence[VectorRange], vectors: Sequence[HostArray], updates: int | None = None) -> tuple[str, ...]:
    """The digest of every range of some vectors of one length."""
    return tuple(digest([kept.view(vector) for vector in vectors], updates) for kept in ranges)


async def give(transport: Transport, to: str, step: int, vectors: Sequence[HostArray]) -> None:
    """Send vectors that the strategy after begins with; who takes them knows how many and how long.

    `step` is the worker's next one, whichever side it is on: it names the messages. Who is told to stop begins no other
    message, but what is under way is not called back: behind half a message a stream could carry nothing any more.
    """
    for number, vector in enumerate(vectors):
        for message in vector_messages(
            Message(MessageTag(step, MessageKind.LOAD, number)), vector, transport.max_piece_bytes
        ):
            sending = transport.start_send(to, message)
            if sending is not None:
                await asyncio.shield(sending)


async def take(transport: Transport, source: str, step: int, into: Sequence[HostArray]) -> None:
    """Fill vectors with what `give` sends.

    Raises:
        DeadlineExceeded: it did not come in time.
        Unreachable: the sender is gone.
    """
    for number, vector in enumerate(into):
        first = await transport.receive(source, MessageTag(step, MessageKind.LOAD, number))
        await receive_remaining_pieces(transport, source, first, vector)
