"""Mailbox of a node: keeps received messages until the node requests them.

Messages are requested by sender and tag.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable
from functools import partial
from itertools import count

from services.runtime.transport import Message, MessageTag, ReceiveCallback, ReceiveOutcome
from services.schema.errors import DeadlineExceeded, NetworkError

REMEMBERED_STEPS = 16  # of the tags of each sender and kind


class _PendingReceive:
    """Pending receive call: waits for the first message with one of several tags."""

    __slots__ = ("_mailbox", "buffer", "callback", "deadline_s", "source", "tags")

    def __init__(
        self, mailbox: "Mailbox", source: str, tags: tuple[MessageTag, ...], callback: ReceiveCallback, due_s: float
    ) -> None:
        self._mailbox = mailbox
        self.source = source
        self.tags = tags
        self.callback = callback
        self.deadline_s = due_s
        self.buffer: memoryview | None = None  # lent for the payload

    def cancel(self) -> None:
        self._mailbox.cancel_receive(self)


class Mailbox:
    """Messages that a node has received, by sender and tag.

    Each is delivered once and taken once, although messages may arrive late, out of order and more than once. Tags are
    remembered for `REMEMBERED_STEPS` steps, and any older message is a duplicate that arrived late: streams keep the
    order of messages, so a message is never overtaken by that many steps. Different kinds progress independently: a
    node that is worker and server pushes gradients of its own step and replies to the steps of other workers.
    """

    def __init__(self, timeout_s: float, dilation: float = 1.0) -> None:
        """Create an empty mailbox.

        Args:
            timeout_s: virtual seconds to wait for a message.
            dilation: wall seconds of the event loop per virtual second.
        """
        self._timeout_s = timeout_s
        self._timeout_remedy = "increase timeouts.step if the declared links or workers are this slow"
        self._dilation = dilation
        self._unclaimed: dict[tuple[str, MessageTag], Message] = {}
        self._pending_by_tag: dict[tuple[str, MessageTag], _PendingReceive] = {}
        self._seen_tags: dict[tuple[str, int], dict[int, set[MessageTag]]] = defaultdict(dict)  # by kind, then by step
        self._newest_step: dict[tuple[str, int], int] = defaultdict(int)  # by sender and kind of message
        self._delayed: dict[str, deque[Message]] = defaultdict(deque)  # by sender; each has a call of the event loop
        self._delay_timers: dict[str, dict[int, asyncio.TimerHandle]] = defaultdict(dict)  # by sender; those calls
        self._timer_numbers = count()
        self._failed_sources: dict[str, NetworkError] = {}
        self._oldest_step = 0  # messages of earlier steps are dropped
        self._pending: dict[_PendingReceive, None] = {}  # oldest first
        self._is_timer_set = False
        self._held_back: list[tuple[str, Message | NetworkError]] | None = None  # by sender, while the node is frozen
        self._is_expiry_due = False  # after the freeze

    def set_time_limit(self, timeout_s: float, remedy: str) -> None:
        """Wait for messages for so many virtual seconds from now on; errors state the remedy."""
        self._timeout_s, self._timeout_remedy = timeout_s, remedy

    def deliver(self, source: str, message: Message) -> None:
        """Pass a received message to the receive call that waits for it, or keep it for later.

        Drop a duplicate.
        """
        if self._held_back is not None:
            self._held_back.append((source, message))
            return
        if not self._register_tag_if_new(source, message.tag):
            return
        pending = self._pending_by_tag.get((source, message.tag))
        if pending is None:
            self._unclaimed[source, message.tag] = message
        else:
            self._complete_receive(pending, message)

    def deliver_at(self, loop_time_s: float, source: str, message: Message) -> None:
        """Deliver a message at a time of the event loop.

        Messages of one sender are delivered in the order of these calls, also at the same time, at which an event loop
        runs its calls in any order. If a later message has an earlier time, as after the end of an event that adds a
        delay, the earlier message comes at that time.
        """
        self._delayed[source].append(message)
        number, loop = next(self._timer_numbers), asyncio.get_running_loop()
        timer = loop.call_at(loop_time_s, self._deliver_oldest_delayed, source, number)
        self._delay_timers[source][number] = timer

    def _deliver_oldest_delayed(self, source: str, timer_number: int) -> None:
        del self._delay_timers[source][timer_number]
        self.deliver(source, self._delayed[source].popleft())

    def withdraw_delayed(self, source: str) -> list[Message]:
        """Return the messages of a sender that `deliver_at` has not delivered yet, which are then never delivered."""
        for timer in self._delay_timers.pop(source, {}).values():
            timer.cancel()
        return list(self._delayed.pop(source, ()))

    def mark_source_failed(self, source: str, error: NetworkError) -> None:
        """Record that no more messages come from `source`.

        Pending and later receive calls get the error.
        """
        if self._held_back is not None:
            self._held_back.append((source, error))
            return
        self._failed_sources[source] = error
        for pending in [pending for pending in self._pending if pending.source == source]:
            self._complete_receive(pending, error)

    def forget_sources(self, sources: Iterable[str], oldest_step: int) -> None:
        """Forget the failures of some senders, and all messages of steps before `oldest_step`.

        Later messages of earlier steps are dropped.
        """
        for source in sources:
            self._failed_sources.pop(source, None)
        self._oldest_step = oldest_step
        self._unclaimed = {key: message for key, message in self._unclaimed.items() if key[1].step >= oldest_step}

    def forget_source(self, source: str) -> None:
        """Forget the failure and the messages of `source`, whose process has been started again."""
        self._failed_sources.pop(source, None)
        for stream in [stream for stream in self._newest_step if stream[0] == source]:
            del self._newest_step[stream]
            self._seen_tags.pop(stream, None)

    def freeze(self) -> None:
        """Hold back all messages and errors until `thaw`, as if the node's process were stopped."""
        if self._held_back is None:
            self._held_back = []

    def thaw(self) -> None:
        """Pass on what was held back since `freeze`, in the order of arrival, before timeouts are checked."""
        held_back, self._held_back = self._held_back or [], None
        for source, outcome in held_back:
            if isinstance(outcome, Message):
                self.deliver(source, outcome)
            else:
                self.mark_source_failed(source, outcome)
        if self._is_expiry_due:
            self._is_expiry_due = False
            self._expire_overdue_receives()

    def claim_buffer(self, source: str, tag: MessageTag, size_bytes: int) -> memoryview | None:
        """Return the buffer of a receive call, so that a message's payload is received in place.

        The receive call waits for this message. Return None if there is no buffer of this size; each buffer is returned
        once.
        """
        pending = self._pending_by_tag.get((source, tag))
        if pending is None or pending.buffer is None or pending.buffer.nbytes != size_bytes:
            return None
        buffer, pending.buffer = pending.buffer, None
        return buffer

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        """Wait for the first message from `source` with one of the tags.

        Its payload may be received into `buffer`.

        Raises:
            DeadlineExceeded: no such message arrived in time.
            NetworkError: the error passed to `mark_source_failed`.
        """
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        pending = self.start_receive(source, tags, partial(_set_future_result, future), buffer)
        try:
            return await future
        finally:
            if pending is not None:
                pending.cancel()

    def start_receive(
        self, source: str, tags: tuple[MessageTag, ...], callback: ReceiveCallback, buffer: memoryview | None = None
    ) -> _PendingReceive | None:
        """Call `callback` with the first suitable message from `source`, or with an error.

        A suitable message has one of the given tags.

        Returns:
            None if `callback` has been called at once, because the message is here or the source has failed.
        """
        if (outcome := self._take_message_or_error(source, tags)) is not None:
            callback(outcome)
            return None
        loop = asyncio.get_running_loop()
        pending = _PendingReceive(self, source, tags, callback, loop.time() + self._timeout_s * self._dilation)
        pending.buffer = buffer
        for tag in tags:
            self._pending_by_tag[source, tag] = pending
        self._pending[pending] = None
        if not self._is_timer_set:  # one timer is enough for all pending calls, since all have the same timeout
            self._is_timer_set = True
            loop.call_at(pending.deadline_s, self._expire_overdue_receives)
        return pending

    def cancel_receive(self, pending_receive: _PendingReceive) -> None:
        """Cancel a pending receive call.

        A message that arrives later is kept for the next call.
        """
        if pending_receive not in self._pending:
            return
        del self._pending[pending_receive]
        for tag in pending_receive.tags:
            self._pending_by_tag.pop((pending_receive.source, tag), None)

    def _take_message_or_error(self, source: str, tags: tuple[MessageTag, ...]) -> ReceiveOutcome | None:
        """Return a message that has already arrived, or the error of a failed source.

        Return None if no message has arrived and the source has not failed.
        """
        for tag in tags:
            if (message := self._unclaimed.pop((source, tag), None)) is not None:
                return message
        return self._failed_sources.get(source)

    def _complete_receive(self, pending_receive: _PendingReceive, message_or_error: ReceiveOutcome) -> None:
        if pending_receive in self._pending:
            self.cancel_receive(pending_receive)
            pending_receive.callback(message_or_error)

    def _expire_overdue_receives(self) -> None:
        """Report an error to receive calls whose deadline has passed.

        Then set the timer for the next deadline.
        """
        loop = asyncio.get_running_loop()
        if self._held_back is not None:
            self._is_expiry_due = True
            return
        self._is_timer_set = False
        for pending in list(self._pending):
            if pending.deadline_s > loop.time():
                self._is_timer_set = True
                loop.call_at(pending.deadline_s, self._expire_overdue_receives)
                return
            self._complete_receive(pending, DeadlineExceeded(self._explain_overdue_message(pending)))

    def _explain_overdue_message(self, pending_receive: _PendingReceive) -> str:
        tags = " or ".join(
            f"{tag.kind_name} (step {tag.step}, chunk {tag.chunk}, piece {tag.piece})" for tag in pending_receive.tags
        )
        return f"no message {tags} from {pending_receive.source} within {self._timeout_s:g} s; {self._timeout_remedy}"

    def _register_tag_if_new(self, source: str, tag: MessageTag) -> bool:
        """Return whether a message with this tag is new.

        A message that is not new is a duplicate. Forget the tags of earlier steps.
        """
        stream = source, tag.kind
        seen_by_step, oldest_step = self._seen_tags[stream], self._newest_step[stream] - REMEMBERED_STEPS + 1
        if tag.step < max(oldest_step, self._oldest_step) or tag in seen_by_step.get(tag.step, ()):
            return False
        if tag.step > self._newest_step[stream]:
            self._newest_step[stream] = tag.step
            for step in [step for step in seen_by_step if step <= tag.step - REMEMBERED_STEPS]:
                del seen_by_step[step]
        seen_by_step.setdefault(tag.step, set()).add(tag)
        return True


def _set_future_result(future: "asyncio.Future[Message]", message_or_error: ReceiveOutcome) -> None:
    if future.done():
        return
    if isinstance(message_or_error, Message):
        future.set_result(message_or_error)
    else:
        future.set_exception(message_or_error)
