"""Where received messages wait for whoever asks for them by name."""

import asyncio
from collections import defaultdict
from functools import partial

from services.runtime.transport import Message, Outcome, Tag, Then
from services.schema.errors import DeadlineExceeded, NetworkError


class _Wanted:
    """Somebody waits for the first of some messages."""

    __slots__ = ("_mailbox", "deadline", "room", "source", "tags", "then")

    def __init__(self, mailbox: "Mailbox", source: str, tags: tuple[Tag, ...], then: Then, deadline: float) -> None:
        self._mailbox = mailbox
        self.source = source
        self.tags = tags
        self.then = then
        self.deadline = deadline
        self.room: memoryview | None = None  # lent for the payload

    def cancel(self) -> None:
        self._mailbox.withdraw(self)


class Mailbox:
    """Messages by sender and tag; each is delivered once and taken once.

    A sender's messages of one stage are never more than one step apart, so a tag is remembered for two steps and
    anything older is a copy that came late. Stages go their own ways: a node that computes and serves pushes gradients
    of its own step and answers others' steps.
    """

    def __init__(self, timeout_s: float, dilation: float = 1.0) -> None:
        """`timeout_s` is virtual; the running event loop waits `dilation` times as long."""
        self._timeout_s = timeout_s
        self._dilation = dilation
        self._waiting: dict[tuple[str, Tag], Message] = {}
        self._wanted: dict[tuple[str, Tag], _Wanted] = {}
        self._seen: dict[str, set[Tag]] = defaultdict(set)
        self._newest: dict[tuple[str, int], int] = defaultdict(int)
        self._gone: dict[str, NetworkError] = {}
        self._due: dict[_Wanted, None] = {}  # oldest first
        self._watched = False

    def deliver(self, source: str, message: Message) -> None:
        """Give the message to whoever waits for it, or keep it; drop a second copy."""
        if not self._is_new(source, message.tag):
            return
        wanted = self._wanted.get((source, message.tag))
        if wanted is None:
            self._waiting[source, message.tag] = message
        else:
            self._settle(wanted, message)

    def fail(self, source: str, error: NetworkError) -> None:
        """Nothing more will come from `source`: whoever waits for it is told."""
        self._gone[source] = error
        for wanted in [each for each in self._due if each.source == source]:
            self._settle(wanted, error)

    def lent(self, source: str, tag: Tag, size: int) -> memoryview | None:
        """Memory where whoever waits for this message wants its payload, if it is `size` long; given out once."""
        wanted = self._wanted.get((source, tag))
        if wanted is None or wanted.room is None or wanted.room.nbytes != size:
            return None
        room, wanted.room = wanted.room, None
        return room

    async def take(self, source: str, *tags: Tag, into: memoryview | None = None) -> Message:
        """The first message from `source` under one of the tags; `into` is lent meanwhile.

        Raises:
            DeadlineExceeded: none came in time.
            NetworkError: what `fail` was told.
        """
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        wanted = self.expect(source, tags, partial(_set, future), into)
        try:
            return await future
        finally:
            if wanted is not None:
                wanted.cancel()

    def expect(self, source: str, tags: tuple[Tag, ...], then: Then, into: memoryview | None = None) -> _Wanted | None:
        """As `take`, but `then` is called with the message or the error: at once, and None returned, if it is here."""
        if (found := self._found(source, tags)) is not None:
            then(found)
            return None
        loop = asyncio.get_running_loop()
        wanted = _Wanted(self, source, tags, then, loop.time() + self._timeout_s * self._dilation)
        wanted.room = into
        for tag in tags:
            self._wanted[source, tag] = wanted
        self._due[wanted] = None
        if not self._watched:  # one timer serves all who wait, since all wait equally long
            self._watched = True
            loop.call_at(wanted.deadline, self._look)
        return wanted

    def withdraw(self, wanted: _Wanted) -> None:
        """Nobody waits there any more."""
        if wanted not in self._due:
            return
        del self._due[wanted]
        for tag in wanted.tags:
            self._wanted.pop((wanted.source, tag), None)

    def _found(self, source: str, tags: tuple[Tag, ...]) -> Outcome | None:
        """What has come before anybody asked."""
        for tag in tags:
            if (message := self._waiting.pop((source, tag), None)) is not None:
                return message
        return self._gone.get(source)

    def _settle(self, wanted: _Wanted, outcome: Outcome) -> None:
        if wanted in self._due:
            self.withdraw(wanted)
            wanted.then(outcome)

    def _look(self) -> None:
        """Give up on whoever has waited too long; come back for the next one."""
        loop = asyncio.get_running_loop()
        self._watched = False
        for wanted in list(self._due):
            if wanted.deadline > loop.time():
                self._watched = True
                loop.call_at(wanted.deadline, self._look)
                return
            names = ", ".join(str(tuple(tag)) for tag in wanted.tags)
            late = f"no message {names} from {wanted.source} within {self._timeout_s:g} s"
            self._settle(wanted, DeadlineExceeded(late))

    def _is_new(self, source: str, tag: Tag) -> bool:
        """Whether this is the first copy; forgets tags that can no longer come."""
        seen, stream = self._seen[source], (source, tag.stage)
        if tag in seen or tag.step < self._newest[stream] - 1:
            return False
        if tag.step > self._newest[stream]:
            self._newest[stream] = tag.step
            self._seen[source] = {known for known in seen if known.stage != tag.stage or known.step >= tag.step - 1}
        self._seen[source].add(tag)
        return True


def _set(future: "asyncio.Future[Message]", outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, Message):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
