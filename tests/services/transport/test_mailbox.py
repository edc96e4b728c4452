"""A mailbox delivers every message once, to whoever asks for it by name, whatever the network does."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.transport import Message, MessageKind, MessageTag
from services.schema.errors import DeadlineExceeded, PeerUnreachable
from services.transport.mailbox import Mailbox

Run = Callable[[Any], Any]

PUSH, LEAVE = MessageTag(0, MessageKind.PUSH), MessageTag(0, MessageKind.LEAVE)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[MessageTag], list[MessageTag]]:
    """The messages of two neighbouring steps, and an order in which they and copies of them arrive."""
    step = draw(st.integers(0, 5))
    tags = [MessageTag(step + late, MessageKind.PARTIAL_SUM, 0, piece) for late in (0, 1) for piece in range(3)]
    return tags, draw(st.permutations(tags + draw(st.lists(st.sampled_from(tags)))))


def test_memory_is_lent_once_and_only_while_somebody_waits(in_virtual_time: Run) -> None:
    """Two copies of a message must not be written to one place, and nothing to a vector that is used otherwise."""

    async def talk() -> list[bool]:
        mailbox, room = Mailbox(timeout_s=1.0), memoryview(bytearray(5))
        taking = asyncio.create_task(mailbox.receive("a", PUSH, buffer=room))
        await asyncio.sleep(0)
        lent = [mailbox.claim_buffer("a", *asked) is room for asked in ((PUSH, 4), (LEAVE, 5), (PUSH, 5), (PUSH, 5))]
        mailbox.deliver("a", Message(PUSH, room))
        await taking
        with pytest.raises(DeadlineExceeded):
            await mailbox.receive("a", LEAVE, buffer=room)
        return [*lent, mailbox.claim_buffer("a", LEAVE, 5) is room]

    assert in_virtual_time(talk()) == [False, False, True, False, False]


@given(case=arrivals(), taken_first=st.integers(0, 6))
def test_every_message_is_taken_once_under_copies_and_reordering(
    case: tuple[list[MessageTag], list[MessageTag]], taken_first: int, in_virtual_time: Run
) -> None:
    """A gradient that is counted twice is a wrong model that nobody notices."""
    tags, arriving = case

    async def talk() -> tuple[list[Message], int]:
        mailbox = Mailbox(timeout_s=1.0)
        early = [asyncio.create_task(mailbox.receive("a", tag)) for tag in tags[:taken_first]]
        await asyncio.sleep(0)
        for tag in arriving:
            mailbox.deliver("a", Message(tag, repr(tag).encode()))
            await asyncio.sleep(0)
        taken = [*await asyncio.gather(*early), *[await mailbox.receive("a", tag) for tag in tags[taken_first:]]]
        for tag in arriving:
            mailbox.deliver("a", Message(tag, b"once more"))
        return taken, len(mailbox._unclaimed)

    taken, left_over = in_virtual_time(talk())

    assert [bytes(message.data) for message in taken] == [repr(tag).encode() for tag in tags]
    assert left_over == 0


def test_senders_have_names_of_their_own(in_virtual_time: Run) -> None:
    """All workers push under the same tag."""

    async def talk() -> list[bytes]:
        mailbox = Mailbox(timeout_s=1.0)
        for source in ("a", "b"):
            mailbox.deliver(source, Message(PUSH, source.encode()))
        return [bytes((await mailbox.receive(source, PUSH)).data) for source in ("b", "a")]

    assert in_virtual_time(talk()) == [b"b", b"a"]


def test_a_copy_of_a_message_of_long_ago_is_dropped(in_virtual_time: Run) -> None:
    """Tags are forgotten after two steps, or a mailbox would grow for ever; forgetting must not let a copy in."""

    async def talk() -> tuple[int, int]:
        mailbox = Mailbox(timeout_s=1.0)
        for step in range(100):
            mailbox.deliver("a", Message(MessageTag(step, MessageKind.PARTIAL_SUM)))
            await mailbox.receive("a", MessageTag(step, MessageKind.PARTIAL_SUM))
        mailbox.deliver("a", Message(MessageTag(3, MessageKind.PARTIAL_SUM)))
        return len(mailbox._unclaimed), len(mailbox._seen_tags["a"])

    waiting, remembered = in_virtual_time(talk())

    assert waiting == 0
    assert remembered <= 2


@pytest.mark.parametrize("late", [False, True])
def test_the_first_of_several_names_is_taken(late: bool, in_virtual_time: Run) -> None:
    """A server does not know whether a worker pushes or leaves."""

    async def talk() -> tuple[Message, Message]:
        mailbox = Mailbox(timeout_s=1.0)
        if late:
            loop = asyncio.get_running_loop()
            loop.call_later(0.1, mailbox.deliver, "a", Message(LEAVE))
            loop.call_later(0.1, mailbox.deliver, "a", Message(PUSH))
        else:
            mailbox.deliver("a", Message(LEAVE))
        first = await mailbox.receive("a", PUSH, LEAVE)
        mailbox.deliver("a", Message(PUSH))
        return first, await mailbox.receive("a", PUSH)

    first, second = in_virtual_time(talk())

    assert (first.tag, second.tag) == (LEAVE, PUSH), "what was not taken waits for the next who asks"


def test_waiting_has_an_end(in_virtual_time: Run) -> None:
    """A lost message is an error that says which, not a run that hangs."""

    async def wait() -> float:
        with pytest.raises(DeadlineExceeded, match=r"no message .*step=0, .*PUSH.* from a within 2.5 s"):
            await Mailbox(timeout_s=2.5).receive("a", PUSH)
        return asyncio.get_running_loop().time()

    assert in_virtual_time(wait()) == pytest.approx(2.5)


def test_a_timeout_is_told_in_the_units_of_the_scenario(in_virtual_time: Run) -> None:
    """60 s were declared; at dilation 16 the host waits 960, which nobody wrote anywhere."""

    async def wait() -> float:
        with pytest.raises(DeadlineExceeded, match="within 60 s"):
            await Mailbox(timeout_s=60.0, dilation=16.0).receive("a", PUSH)
        return asyncio.get_running_loop().time()

    assert in_virtual_time(wait()) == pytest.approx(960.0)


def test_a_message_after_the_deadline_is_kept_for_the_next_who_asks(in_virtual_time: Run) -> None:
    """Giving up must leave nothing behind that swallows it."""

    async def wait() -> Message:
        mailbox = Mailbox(timeout_s=1.0)
        with pytest.raises(DeadlineExceeded):
            await mailbox.receive("a", PUSH, LEAVE)
        mailbox.deliver("a", Message(PUSH))
        return await mailbox.receive("a", PUSH)

    assert in_virtual_time(wait()).tag == PUSH


def test_the_end_of_a_sender_wakes_whoever_waits_for_it(in_virtual_time: Run) -> None:
    """A killed worker must be noticed at once, not after the timeout; what it had sent before still counts."""

    async def wait() -> tuple[list[Any], float]:
        mailbox = Mailbox(timeout_s=100.0)
        mailbox.deliver("a", Message(LEAVE))
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, mailbox.mark_source_failed, "a", PeerUnreachable("a is gone"))
        loop.call_later(2.0, mailbox.deliver, "b", Message(PUSH))
        waiting = [
            mailbox.receive("a", PUSH),
            mailbox.receive("a", MessageTag(1, MessageKind.PUSH)),
            mailbox.receive("b", PUSH),
        ]
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        kept = await mailbox.receive("a", LEAVE)
        with pytest.raises(PeerUnreachable):
            await mailbox.receive("a", PUSH)
        return [*ended, kept], loop.time()

    (first, second, other, kept), seconds = in_virtual_time(wait())

    assert isinstance(first, PeerUnreachable)
    assert isinstance(second, PeerUnreachable)
    assert (other.tag, kept.tag, seconds) == (PUSH, LEAVE, 2.0)
