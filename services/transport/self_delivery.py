"""Delivery of messages from a node to itself, if it is both worker and server.

Such messages are not sent, and not counted as sent.
"""

from collections.abc import Iterable

from services.runtime.transport import (
    Message,
    MessageTag,
    PendingMessage,
    ReceiveCallback,
    SendFuture,
    SentTraffic,
    Transport,
)
from services.transport.mailbox import Mailbox


class SelfDeliveryTransport(Transport):
    """Transport of a node that is both worker and server.

    Messages of the node to itself stay in the process. The roles of the node share a mailbox. Each role counts the
    messages that it has sent to other nodes; the inner transport counts the messages of all roles.
    """

    def __init__(self, inner: Transport, node_name: str, mailbox: Mailbox) -> None:
        self.traffic = SentTraffic()
        self.payload_scale = inner.payload_scale
        self.max_piece_bytes = inner.max_piece_bytes
        self.min_piece_bytes = inner.min_piece_bytes
        self._inner = inner
        self._node_name = node_name
        self._mailbox = mailbox

    async def connect(self, node_names: Iterable[str]) -> None:
        await self._inner.connect([name for name in node_names if name != self._node_name])

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        self._inner.forget_lost_peers(names, oldest_step, returned)
        self._mailbox.forget_sources((), oldest_step)

    async def send(self, target: str, message: Message) -> None:
        if target == self._node_name:
            return self._deliver_to_own_mailbox(message)
        self.traffic.add_message(target, self.size_on_wire(message), framing_bytes=0)
        return await self._inner.send(target, message)

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        if source != self._node_name:
            return await self._inner.receive(source, *tags, buffer=buffer)
        return await self._mailbox.receive(source, *tags)

    def start_send(self, target: str, message: Message) -> SendFuture | None:
        if target == self._node_name:
            self._deliver_to_own_mailbox(message)
            return None
        self.traffic.add_message(target, self.size_on_wire(message), framing_bytes=0)
        return self._inner.start_send(target, message)

    def start_receive(
        self, source: str, tag: MessageTag, callback: ReceiveCallback, buffer: memoryview | None = None
    ) -> PendingMessage | None:
        if source != self._node_name:
            return self._inner.start_receive(source, tag, callback, buffer)
        return self._mailbox.start_receive(source, (tag,), callback)

    def _deliver_to_own_mailbox(self, message: Message) -> None:
        # Copy the payload: the sender may change its buffer afterwards.
        self._mailbox.deliver(self._node_name, message._replace(data=bytes(message.data)))
