"""Transport of one membership epoch: separates the messages of an epoch from those of earlier and later ones."""

import asyncio
from collections.abc import Iterable

from services.runtime.transport import (
    Message,
    MessageTag,
    PendingMessage,
    ReceiveCallback,
    ReceiveOutcome,
    SendFuture,
    Transport,
)
from services.scenario.recovery import RecoverySettings
from services.schema.errors import NetworkError

_STEP_BITS = 40  # of the step in the number that identifies epoch and step on the wire; the epoch has the other 24 bits


def first_step_on_wire(epoch: int) -> int:
    """Return the smallest number by which messages of a membership epoch identify epoch and step."""
    return epoch << _STEP_BITS


class EpochTransport(Transport):
    """Transport of a node during one membership epoch.

    On the wire, the step of a message contains the epoch in its upper bits. So messages of an earlier epoch match no
    receive call of this epoch, and a mailbox drops them as older than the newest step; messages of a later epoch wait
    until the receiver has begun that epoch. A step that is broken off does not break off its messages: a stream to a
    node that goes on can be used in the next epoch.
    """

    def __init__(self, inner: Transport, epoch: int) -> None:
        self.epoch = epoch
        self.traffic = inner.traffic  # of all epochs together
        self.payload_scale = inner.payload_scale
        self.max_piece_bytes = inner.max_piece_bytes
        self.min_piece_bytes = inner.min_piece_bytes
        self.inner = inner
        self._sending: set[asyncio.Future[None]] = set()

    async def connect(self, node_names: Iterable[str]) -> None:
        await self.inner.connect(node_names)

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        self.inner.forget_lost_peers(names, oldest_step, returned)

    async def send(self, target: str, message: Message) -> None:
        sending = asyncio.get_running_loop().create_task(self.inner.send(target, self._to_wire(message)))
        self._keep_until_done(sending)
        await asyncio.shield(sending)

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        message = await self.inner.receive(source, *map(self._tag_to_wire, tags), buffer=buffer)
        return self._from_wire(message)

    def start_send(self, target: str, message: Message) -> SendFuture | None:
        sending = self.inner.start_send(target, self._to_wire(message))
        if sending is None:
            return None
        self._keep_until_done(sending)
        return asyncio.shield(sending)

    def start_receive(
        self, source: str, tag: MessageTag, callback: ReceiveCallback, buffer: memoryview | None = None
    ) -> PendingMessage | None:
        def call_back_without_epoch(outcome: ReceiveOutcome) -> None:
            callback(self._from_wire(outcome) if isinstance(outcome, Message) else outcome)

        return self.inner.start_receive(source, self._tag_to_wire(tag), call_back_without_epoch, buffer)

    def _keep_until_done(self, sending: "asyncio.Future[None]") -> None:
        """Let a message be written to its end, even if its sender no longer waits for it."""
        self._sending.add(sending)
        sending.add_done_callback(self._forget_sent_message)

    def _forget_sent_message(self, sending: "asyncio.Future[None]") -> None:
        self._sending.discard(sending)
        if not sending.cancelled() and isinstance(sending.exception(), NetworkError):
            return  # the sender has the error, or no longer waits: its step was broken off

    def _to_wire(self, message: Message) -> Message:
        return message._replace(tag=self._tag_to_wire(message.tag))

    def _from_wire(self, message: Message) -> Message:
        return message._replace(tag=message.tag._replace(step=message.tag.step & ((1 << _STEP_BITS) - 1)))

    def _tag_to_wire(self, tag: MessageTag) -> MessageTag:
        return tag._replace(step=tag.step | first_step_on_wire(self.epoch))


def first_epoch_transport(transport: Transport, recovery: RecoverySettings) -> Transport:
    """Return the transport of the first membership epoch of a trial; the same transport if no other can follow."""
    return EpochTransport(transport, 0) if recovery.is_active else transport


def begin_membership_epoch(
    transport: Transport, epoch: int, lost_peers: Iterable[str], returned_peers: Iterable[str]
) -> EpochTransport:
    """Return the transport of a new membership epoch, over the same connections.

    Messages of earlier epochs and the connections to `lost_peers` are forgotten; `returned_peers` are those of them
    that are members of the new epoch.
    """
    inner = transport.inner if isinstance(transport, EpochTransport) else transport
    inner.forget_lost_peers(lost_peers, first_step_on_wire(epoch), returned_peers)
    return EpochTransport(inner, epoch)
