"""A node that serves as well is its own neighbour: what goes to itself stays inside, all else goes its way."""

import asyncio
from collections.abc import Iterable

from services.runtime.transport import (
    Message,
    MessageKind,
    MessageTag,
    PendingOperation,
    ReceiveCallback,
    ReceiveOutcome,
    SendFuture,
    SentTraffic,
    Transport,
)
from services.transport.mailbox import Mailbox
from services.transport.self_delivery import SelfDeliveryTransport

WORD = Message(MessageTag(1, MessageKind.PARTIAL_SUM), b"word")


class Inner(Transport):
    """Writes down what it is asked; nothing of it needs a task."""

    max_piece_bytes = min_piece_bytes = 1 << 20

    def __init__(self) -> None:
        self.traffic = SentTraffic()
        self.asked: list[tuple[str, str]] = []

    async def connect(self, node_names: Iterable[str]) -> None:
        """Everybody is here."""

    async def send(self, target: str, message: Message) -> None:
        raise AssertionError

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        raise AssertionError

    def start_send(self, target: str, message: Message) -> SendFuture | None:
        self.asked.append(("send", target))

    def start_receive(
        self, source: str, tag: MessageTag, callback: ReceiveCallback, buffer: memoryview | None = None
    ) -> PendingOperation | None:
        self.asked.append(("recv", source))
        callback(WORD)


def seen_by_me(inner: Inner) -> SelfDeliveryTransport:
    return SelfDeliveryTransport(inner, "me", Mailbox(1.0))


def test_what_goes_to_others_costs_a_serving_node_no_task_either() -> None:
    """A ring before a switch to servers on its own nodes would be slower than the same ring alone."""

    async def exchange() -> list[ReceiveOutcome]:
        transport, came = seen_by_me(inner := Inner()), list[ReceiveOutcome]()
        assert transport.start_send("other", WORD) is None
        assert transport.start_receive("other", WORD.tag, came.append) is None
        assert inner.asked == [("send", "other"), ("recv", "other")]
        assert transport.traffic.payload_bytes_by_peer == {"other": 4}
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return came

    assert asyncio.run(exchange()) == [WORD]


def test_what_goes_to_itself_stays_inside_and_is_as_it_was_sent() -> None:
    """The sender may change its buffer; nothing of it is traffic."""

    async def exchange() -> list[ReceiveOutcome]:
        transport, came, buffer = seen_by_me(inner := Inner()), list[ReceiveOutcome](), bytearray(b"word")
        transport.start_receive("me", WORD.tag, came.append)
        assert transport.start_send("me", WORD._replace(data=memoryview(buffer))) is None
        buffer[:] = b"gone"
        assert not inner.asked
        assert not transport.traffic.messages
        return came

    assert asyncio.run(exchange()) == [WORD]
