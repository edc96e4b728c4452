"""A mailbox delivers every message once, to the receiver of its tag, despite copies and reordering."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.transport import Message, MessageKind, MessageTag
from services.schema.errors import DeadlineExceeded, PeerUnreachable
from services.transport.mailbox import REMEMBERED_STEPS, Mailbox

InVirtualTime = Callable[[Any], Any]

PUSH, LEAVE = MessageTag(0, MessageKind.PUSH), MessageTag(0, MessageKind.LEAVE)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[MessageTag], list[MessageTag]]:
    """Draw the tags of two consecutive steps, and an order in which these messages and copies of them arrive."""
    step = draw(st.integers(0, 5))
    tags = [MessageTag(step + offset, MessageKind.PARTIAL_SUM, 0, piece) for offset in (0, 1) for piece in range(3)]
    return tags, draw(st.permutations(tags + draw(st.lists(st.sampled_from(tags)))))


def test_a_buffer_is_claimed_once_and_only_while_a_receiver_waits(in_virtual_time: InVirtualTime) -> None:
    """Two copies of a message must not be written to one buffer, and none to a buffer that has another use by now."""

    async def exchange() -> list[bool]:
        mailbox, buffer = Mailbox(timeout_s=1.0), memoryview(bytearray(5))
        receiving = asyncio.create_task(mailbox.receive("a", PUSH, buffer=buffer))
        await asyncio.sleep(0)
        claimed = [
            mailbox.claim_buffer("a", *request) is buffer for request in ((PUSH, 4), (LEAVE, 5), (PUSH, 5), (PUSH, 5))
        ]
        mailbox.deliver("a", Message(PUSH, buffer))
        await receiving
        with pytest.raises(DeadlineExceeded):
            await mailbox.receive("a", LEAVE, buffer=buffer)
        return [*claimed, mailbox.claim_buffer("a", LEAVE, 5) is buffer]

    assert in_virtual_time(exchange()) == [False, False, True, False, False]


@given(case=arrivals(), received_early=st.integers(0, 6))
def test_every_message_is_received_once_despite_copies_and_reordering(
    case: tuple[list[MessageTag], list[MessageTag]], received_early: int, in_virtual_time: InVirtualTime
) -> None:
    """A gradient that is counted twice makes the model wrong without an error."""
    tags, arriving = case

    async def exchange() -> tuple[list[Message], int]:
        mailbox = Mailbox(timeout_s=1.0)
        early = [asyncio.create_task(mailbox.receive("a", tag)) for tag in tags[:received_early]]
        await asyncio.sleep(0)
        for tag in arriving:
            mailbox.deliver("a", Message(tag, repr(tag).encode()))
            await asyncio.sleep(0)
        received = [*await asyncio.gather(*early), *[await mailbox.receive("a", tag) for tag in tags[received_early:]]]
        for tag in arriving:
            mailbox.deliver("a", Message(tag, b"once more"))
        return received, len(mailbox._unclaimed)

    received, left_over = in_virtual_time(exchange())

    assert [bytes(message.data) for message in received] == [repr(tag).encode() for tag in tags]
    assert left_over == 0


def test_delayed_messages_of_one_time_keep_their_order(in_virtual_time: InVirtualTime) -> None:
    """A message that two later messages overtake looks like a late duplicate, and it would be lost.

    When an added delay ends, all messages that were delayed by it, and those behind them, arrive at the same time.
    """

    async def exchange() -> list[bytes]:
        mailbox, tags = Mailbox(timeout_s=1.0), [MessageTag(2 * step, MessageKind.BLOCK) for step in range(9)]
        for number, tag in enumerate(tags):
            mailbox.deliver_at(0.5, "a", Message(tag, bytes([number])))
            mailbox.deliver_at(0.1 * number, "b", Message(tag, b""))
        return [bytes((await mailbox.receive("a", tag)).data) for tag in tags]

    assert in_virtual_time(exchange()) == [bytes([number]) for number in range(9)]


def test_message_that_the_next_exchange_overtakes_is_delivered(in_virtual_time: InVirtualTime) -> None:
    """A worker of an exponential graph sends to one neighbour in every second step, and to others in between.

    The next message to this neighbour is then two steps later. If it arrives first, the earlier one is no duplicate.
    """

    async def exchange() -> tuple[list[int], int]:
        mailbox, tags = Mailbox(timeout_s=1.0), [MessageTag(step, MessageKind.BLOCK) for step in (0, 2, 4)]
        for tag in (tags[1], tags[0], tags[0], tags[2], tags[1]):
            mailbox.deliver("a", Message(tag))
        taken = [(await mailbox.receive("a", tag)).tag.step for tag in tags]
        for tag in tags:
            mailbox.deliver("a", Message(tag))
        return taken, len(mailbox._unclaimed)

    assert in_virtual_time(exchange()) == ([0, 2, 4], 0)


def test_messages_of_several_senders_with_the_same_tag_are_distinct(in_virtual_time: InVirtualTime) -> None:
    """All workers push with the same tag."""

    async def exchange() -> list[bytes]:
        mailbox = Mailbox(timeout_s=1.0)
        for source in ("a", "b"):
            mailbox.deliver(source, Message(PUSH, source.encode()))
        return [bytes((await mailbox.receive(source, PUSH)).data) for source in ("b", "a")]

    assert in_virtual_time(exchange()) == [b"b", b"a"]


def test_a_copy_of_an_old_message_is_dropped(in_virtual_time: InVirtualTime) -> None:
    """The mailbox forgets tags after two steps to limit its size, and must still reject a copy."""

    async def exchange() -> tuple[int, int]:
        mailbox = Mailbox(timeout_s=1.0)
        for step in range(100):
            mailbox.deliver("a", Message(MessageTag(step, MessageKind.PARTIAL_SUM)))
            await mailbox.receive("a", MessageTag(step, MessageKind.PARTIAL_SUM))
        mailbox.deliver("a", Message(MessageTag(3, MessageKind.PARTIAL_SUM)))
        return len(mailbox._unclaimed), len(mailbox._seen_tags["a"])

    unclaimed, remembered = in_virtual_time(exchange())

    assert unclaimed == 0
    assert remembered <= 2


@pytest.mark.parametrize("arrives_later", [False, True])
def test_receive_with_several_tags_returns_the_first_message(
    arrives_later: bool, in_virtual_time: InVirtualTime
) -> None:
    """A server does not know whether a worker will push or leave."""

    async def exchange() -> tuple[Message, Message]:
        mailbox = Mailbox(timeout_s=1.0)
        if arrives_later:
            loop = asyncio.get_running_loop()
            loop.call_later(0.1, mailbox.deliver, "a", Message(LEAVE))
            loop.call_later(0.1, mailbox.deliver, "a", Message(PUSH))
        else:
            mailbox.deliver("a", Message(LEAVE))
        first = await mailbox.receive("a", PUSH, LEAVE)
        mailbox.deliver("a", Message(PUSH))
        return first, await mailbox.receive("a", PUSH)

    first, second = in_virtual_time(exchange())

    assert (first.tag, second.tag) == (LEAVE, PUSH), "the other message waits for the next receive"


def test_receive_ends_at_its_deadline(in_virtual_time: InVirtualTime) -> None:
    """A lost message causes an error that names it, and the run does not hang."""

    async def wait() -> float:
        message = r"^no message PUSH \(step 0, chunk 0, piece 0\) from a within 2.5 s; increase timeouts.step if"
        with pytest.raises(DeadlineExceeded, match=message):
            await Mailbox(timeout_s=2.5).receive("a", PUSH)
        return asyncio.get_running_loop().time()

    assert in_virtual_time(wait()) == pytest.approx(2.5)


def test_a_timeout_is_reported_in_seconds_of_the_scenario(in_virtual_time: InVirtualTime) -> None:
    """60 s were declared; at dilation 16 the host waits 960 s, which the scenario does not contain."""

    async def wait() -> float:
        with pytest.raises(DeadlineExceeded, match="within 60 s"):
            await Mailbox(timeout_s=60.0, dilation=16.0).receive("a", PUSH)
        return asyncio.get_running_loop().time()

    assert in_virtual_time(wait()) == pytest.approx(960.0)


def test_a_message_after_the_deadline_is_kept_for_the_next_receive(in_virtual_time: InVirtualTime) -> None:
    """An expired receive must leave nothing behind that takes the message."""

    async def wait() -> Message:
        mailbox = Mailbox(timeout_s=1.0)
        with pytest.raises(DeadlineExceeded):
            await mailbox.receive("a", PUSH, LEAVE)
        mailbox.deliver("a", Message(PUSH))
        return await mailbox.receive("a", PUSH)

    assert in_virtual_time(wait()).tag == PUSH


def test_the_failure_of_a_sender_wakes_the_receivers_that_wait_for_it(in_virtual_time: InVirtualTime) -> None:
    """A killed worker must be noticed at once, not after the timeout; its earlier messages still count."""

    async def wait() -> tuple[list[Any], float]:
        mailbox = Mailbox(timeout_s=100.0)
        mailbox.deliver("a", Message(LEAVE))
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, mailbox.mark_source_failed, "a", PeerUnreachable("a is gone"))
        loop.call_later(2.0, mailbox.deliver, "b", Message(PUSH))
        receiving = [
            mailbox.receive("a", PUSH),
            mailbox.receive("a", MessageTag(1, MessageKind.PUSH)),
            mailbox.receive("b", PUSH),
        ]
        outcomes = await asyncio.gather(*receiving, return_exceptions=True)
        earlier_message = await mailbox.receive("a", LEAVE)
        with pytest.raises(PeerUnreachable):
            await mailbox.receive("a", PUSH)
        return [*outcomes, earlier_message], loop.time()

    (first, second, other, earlier_message), seconds = in_virtual_time(wait())

    assert isinstance(first, PeerUnreachable)
    assert isinstance(second, PeerUnreachable)
    assert (other.tag, earlier_message.tag, seconds) == (PUSH, LEAVE, 2.0)


def test_message_that_others_of_many_steps_have_overtaken_is_no_duplicate(in_virtual_time: InVirtualTime) -> None:
    """A worker of a one-way gossip topology sends several steps ahead; a late message must not be lost."""

    async def exchange() -> Message:
        mailbox = Mailbox(timeout_s=1.0)
        for step in range(1, REMEMBERED_STEPS):
            mailbox.deliver("a", Message(MessageTag(step, MessageKind.BLOCK)))
        mailbox.deliver("a", Message(MessageTag(0, MessageKind.BLOCK), b"late"))
        return await mailbox.receive("a", MessageTag(0, MessageKind.BLOCK))

    assert in_virtual_time(exchange()).data == b"late"
