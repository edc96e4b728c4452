"""Messages with which workers report their steps and get their groups."""

import asyncio
from collections import deque

import pytest

from services.runtime.transport import Message, MessageTag
from services.strategies.async_averaging.group_generator import FormGroupAction
from services.strategies.async_averaging.group_messages import WorkerGroup, make_group_messages, receive_group
from services.transport.codec import decode_message, encode_message


class ReceivedMessages:
    """Transport that has already received messages from one node."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = deque(messages)

    async def receive(self, source: str, *tags: MessageTag) -> Message:
        message = self.messages.popleft()
        assert (source, message.tag) == ("worker-0", *tags)
        return message


@pytest.mark.parametrize(
    ("workers", "ranks"), [(2, (0, 1)), (64, (0, 63)), (65, (0, 64)), (200, tuple(range(200))), (130, (5, 64, 129))]
)
def test_member_gets_the_group_that_was_formed(workers: int, ranks: tuple[int, ...]) -> None:
    """A member that knew other members would wait for ever. Messages are encoded as on the network."""
    action = FormGroupAction(7, ranks, 1000, {rank: 10 + rank for rank in ranks})
    group = WorkerGroup.of_member(action, ranks[-1])
    sent = [decode_message(encode_message(message)) for message in make_group_messages(3, group, workers)]

    received = asyncio.run(receive_group(ReceivedMessages(sent), "worker-0", 3, workers))  # type: ignore[arg-type]

    assert received == group
    assert sum(message.size_bytes for message in sent) == 0
