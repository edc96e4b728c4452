"""A worker that is also a server delivers messages to itself in memory and sends all others as usual."""

import asyncio
from collections.abc import Iterable

from services.runtime.transport import (
    Message,
    MessageKind,
    MessageTag,
    PendingMessage,
    ReceiveCallback,
    ReceiveOutcome,
    SendFuture,
    SentTraffic,
    Transport,
)
from services.transport.mailbox import Mailbox
from services.transport.self_delivery import SelfDeliveryTransport

MESSAGE = Message(MessageTag(1, MessageKind.PARTIAL_SUM), b"word")


class RecordingTransport(Transport):
    """Records its calls; no call needs a task."""

    max_piece_bytes = min_piece_bytes = 1 << 20

    def __init__(self) -> None:
        self.traffic = SentTraffic()
        self.calls: list[tuple[str, str]] = []

    async def connect(self, node_names: Iterable[str]) -> None:
        """All nodes are connected."""

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        """No node is lost."""

    async def send(self, target: str, message: Message) -> None:
        raise AssertionError

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        raise AssertionError

    def start_send(self, target: str, message: Message) -> SendFuture | None:
        self.calls.append(("send", target))

    def start_receive(
        self, source: str, tag: MessageTag, callback: ReceiveCallback, buffer: memoryview | None = None
    ) -> PendingMessage | None:
        self.calls.append(("recv", source))
        callback(MESSAGE)


def self_delivery_for(inner: RecordingTransport) -> SelfDeliveryTransport:
    return SelfDeliveryTransport(inner, "me", Mailbox(1.0))


def test_messages_to_other_nodes_create_no_task_on_a_worker_that_is_also_a_server() -> None:
    """Otherwise a ring before a switch to servers on the workers would be slower than the same ring alone."""

    async def exchange() -> list[ReceiveOutcome]:
        transport, received = self_delivery_for(inner := RecordingTransport()), list[ReceiveOutcome]()
        assert transport.start_send("other", MESSAGE) is None
        assert transport.start_receive("other", MESSAGE.tag, received.append) is None
        assert inner.calls == [("send", "other"), ("recv", "other")]
        assert transport.traffic.payload_bytes_by_peer == {"other": 4}
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return received

    assert asyncio.run(exchange()) == [MESSAGE]


def test_a_message_to_the_same_node_stays_in_memory_and_keeps_its_content() -> None:
    """The sender may change its buffer afterwards; the message does not count as traffic."""

    async def exchange() -> list[ReceiveOutcome]:
        transport, received, buffer = (
            self_delivery_for(inner := RecordingTransport()),
            list[ReceiveOutcome](),
            bytearray(b"word"),
        )
        transport.start_receive("me", MESSAGE.tag, received.append)
        assert transport.start_send("me", MESSAGE._replace(data=memoryview(buffer))) is None
        buffer[:] = b"gone"
        assert not inner.calls
        assert not transport.traffic.messages
        return received

    assert asyncio.run(exchange()) == [MESSAGE]
