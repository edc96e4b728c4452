"""Where received messages wait for whoever asks for them by name."""

import asyncio
from collections import defaultdict

from services.errors import DeadlineExceeded, NetworkError
from services.transport.base import Message, Tag


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
        self._wanted: dict[tuple[str, Tag], asyncio.Future[Message]] = {}
        self._lent: dict[tuple[str, Tag], memoryview] = {}  # by those who wait, for payloads
        self._seen: dict[str, set[Tag]] = defaultdict(set)
        self._newest: dict[tuple[str, int], int] = defaultdict(int)
        self._gone: dict[str, NetworkError] = {}
        self._due: dict[asyncio.Future[Message], tuple[float, tuple[str, tuple[Tag, ...]]]] = {}  # oldest first
        self._watched = False

    def deliver(self, source: str, message: Message) -> None:
        """Give the message to whoever waits for it, or keep it; drop a second copy."""
        if not self._is_new(source, message.tag):
            return
        future = self._wanted.pop((source, message.tag), None)
        if future is not None and not future.done():
            future.set_result(message)
        else:
            self._waiting[source, message.tag] = message

    def fail(self, source: str, error: NetworkError) -> None:
        """Nothing more will come from `source`: whoever waits for it is told."""
        self._gone[source] = error
        for key in [key for key in self._wanted if key[0] == source]:
            future = self._wanted.pop(key)
            if not future.done():
                future.set_exception(error)

    def lent(self, source: str, tag: Tag, size: int) -> memoryview | None:
        """Memory where whoever waits for this message wants its payload, if it is `size` long; given out once."""
        room = self._lent.get((source, tag))
        return self._lent.pop((source, tag)) if room is not None and room.nbytes == size else None

    async def take(self, source: str, *tags: Tag, into: memoryview | None = None) -> Message:
        """The first message from `source` under one of the tags; `into` is lent meanwhile.

        Raises:
            DeadlineExceeded: none came in time.
            NetworkError: what `fail` was told.
        """
        for tag in tags:
            if (message := self._waiting.pop((source, tag), None)) is not None:
                return message
        if source in self._gone:
            raise self._gone[source]
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        for tag in tags:
            self._wanted[source, tag] = future
            if into is not None:
                self._lent[source, tag] = into
        self._await(future, source, tags)
        try:
            return await future
        finally:
            del self._due[future]
            for tag in tags:
                self._wanted.pop((source, tag), None)
                self._lent.pop((source, tag), None)

    def _await(self, future: asyncio.Future[Message], source: str, tags: tuple[Tag, ...]) -> None:
        """Note until when; one timer serves all who wait, since all wait equally long."""
        loop = asyncio.get_running_loop()
        self._due[future] = loop.time() + self._timeout_s * self._dilation, (source, tags)
        if not self._watched:
            self._watched = True
            loop.call_at(self._due[future][0], self._look)

    def _look(self) -> None:
        """Give up on whoever has waited too long; come back for the next one."""
        loop = asyncio.get_running_loop()
        self._watched = False
        for future, (deadline, (source, tags)) in list(self._due.items()):
            if deadline > loop.time():
                self._watched = True
                loop.call_at(deadline, self._look)
                return
            if not future.done():
                names = ", ".join(str(tuple(tag)) for tag in tags)
                future.set_exception(DeadlineExceeded(f"no message {names} from {source} within {self._timeout_s:g} s"))

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
