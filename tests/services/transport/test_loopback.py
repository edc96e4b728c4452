"""A node that serves as well is its own neighbour: what goes to itself stays inside, all else goes its way."""

import asyncio
from collections.abc import Iterable

from services.runtime.transport import Awaited, Message, Outcome, Sending, Stage, Tag, Then, Traffic, Transport
from services.transport.loopback import LoopbackTransport
from services.transport.mailbox import Mailbox

WORD = Message(Tag(1, Stage.SUM), b"word")


class Inner(Transport):
    """Writes down what it is asked; nothing of it needs a task."""

    piece_bytes = finest_bytes = 1 << 20

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.asked: list[tuple[str, str]] = []

    async def connect(self, names: Iterable[str]) -> None:
        """Everybody is here."""

    async def send(self, to: str, message: Message) -> None:
        raise AssertionError

    async def recv(self, source: str, *tags: Tag, into: memoryview | None = None) -> Message:
        raise AssertionError

    def send_soon(self, to: str, message: Message) -> Sending | None:
        self.asked.append(("send", to))

    def recv_then(self, source: str, tag: Tag, then: Then, into: memoryview | None = None) -> Awaited | None:
        self.asked.append(("recv", source))
        then(WORD)


def seen_by_me(inner: Inner) -> LoopbackTransport:
    return LoopbackTransport(inner, "me", Mailbox(1.0))


def test_what_goes_to_others_costs_a_serving_node_no_task_either() -> None:
    """A ring before a switch to servers on its own nodes would be slower than the same ring alone."""

    async def exchange() -> list[Outcome]:
        transport, came = seen_by_me(inner := Inner()), list[Outcome]()
        assert transport.send_soon("other", WORD) is None
        assert transport.recv_then("other", WORD.tag, came.append) is None
        assert inner.asked == [("send", "other"), ("recv", "other")]
        assert transport.traffic.by_peer == {"other": 4}
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return came

    assert asyncio.run(exchange()) == [WORD]


def test_what_goes_to_itself_stays_inside_and_is_as_it_was_sent() -> None:
    """The sender may change its buffer; nothing of it is traffic."""

    async def exchange() -> list[Outcome]:
        transport, came, buffer = seen_by_me(inner := Inner()), list[Outcome](), bytearray(b"word")
        transport.recv_then("me", WORD.tag, came.append)
        assert transport.send_soon("me", WORD._replace(data=memoryview(buffer))) is None
        buffer[:] = b"gone"
        assert not inner.asked
        assert not transport.traffic.messages
        return came

    assert asyncio.run(exchange()) == [WORD]
