"""State transfer at a strategy switch.

This module has digests of vectors, messages that carry vectors, and the time limit.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from services.learning.layout import VectorRange
from services.runtime.clock import Clock
from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import make_vector_messages, receive_remaining_pieces
from services.schema.arrays import HostArray
from services.schema.errors import DeadlineExceeded


@dataclass(frozen=True)
class StrategySwitchTimeout:
    """Time limit of a strategy switch in one node.

    The coordinator has the same time limit and counts it from the first node that stops its training.
    """

    clock: Clock
    timeout_s: float  # virtual

    @property
    def deadline_from_now_s(self) -> float:
        """Deadline of a strategy switch that begins now, as a virtual time.

        A node that stops its training now must have finished the switch by this time.
        """
        return self.clock.now() + self.timeout_s

    @asynccontextmanager
    async def cancel_block_at_deadline(self, virtual_deadline_s: float) -> AsyncIterator[None]:
        """Cancel the body of an `async with` block at a deadline.

        The deadline is the virtual time `virtual_deadline_s`. Without a deadline, a message to a node that is cut off
        would wait for ever.

        Raises:
            DeadlineExceeded: the body was not finished at the deadline.
        """
        try:
            async with asyncio.timeout(self.clock.to_wall_s(max(0.0, virtual_deadline_s - self.clock.now()))):
                yield
        except TimeoutError:
            raise DeadlineExceeded(f"the strategy switch did not finish within {self.timeout_s:g} s") from None


def hash_vectors(model_vectors: Sequence[HostArray], optimiser_update_count: int | None = None) -> str:
    """Return the SHA-256 digest of vectors.

    For an optimiser's state, its update count is included.
    """
    sha256 = hashlib.sha256(b"" if optimiser_update_count is None else str(optimiser_update_count).encode())
    for vector in model_vectors:
        sha256.update(np.ascontiguousarray(vector).tobytes())
    return sha256.hexdigest()


def compute_shard_digests(
    shard_ranges: Sequence[VectorRange], model_vectors: Sequence[HostArray], optimiser_update_count: int | None = None
) -> tuple[str, ...]:
    """Return one SHA-256 digest for each range of the vectors.

    A digest covers its range in all of the vectors, which have equal lengths.
    """
    return tuple(
        hash_vectors([shard.view(vector) for vector in model_vectors], optimiser_update_count) for shard in shard_ranges
    )


async def send_model_vectors(transport: Transport, receiver_name: str, step: int, vectors: Sequence[HostArray]) -> None:
    """Send parameters or optimiser vectors to another node.

    The other node already knows the number and the lengths of the vectors. If this task is cancelled, no further
    message is sent, but a message that has been started is completed: a stream could carry nothing after half a
    message.

    Args:
        transport: of the sender.
        receiver_name: name of the node.
        step: next step of the worker that sends or receives; it identifies the messages.
        vectors: in the order in which the receiver expects them.
    """
    for number, vector in enumerate(vectors):
        header = Message(MessageTag(step, MessageKind.LOAD, number))
        for message in make_vector_messages(header, vector, transport.max_payload_bytes):
            sending = transport.start_send(receiver_name, message)
            if sending is not None:
                await asyncio.shield(sending)


async def receive_model_vectors(
    transport: Transport, sender: str, step: int, vectors_to_fill: Sequence[HostArray]
) -> None:
    """Receive parameters or optimiser vectors from another node.

    The vectors of the node `sender` are written into `vectors_to_fill`.

    Raises:
        DeadlineExceeded: a message did not arrive in time.
        PeerUnreachable: the sender is gone.
    """
    for number, vector in enumerate(vectors_to_fill):
        first = await transport.receive(sender, MessageTag(step, MessageKind.LOAD, number))
        await receive_remaining_pieces(transport, sender, first, vector)
