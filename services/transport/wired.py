"""What do all data planes between processes have in common? Shaping on the way out and in, and the mailbox."""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

from services.cluster.addresses import Address
from services.cluster.fluid_link import Passage
from services.cluster.message_lengths import Lengths
from services.runtime.clock import Clock
from services.runtime.identity import Identity
from services.runtime.transport import Awaited, Message, Tag, Then, Traffic, Transport
from services.transport.codec import PREFIX_BYTES
from services.transport.mailbox import Mailbox
from services.transport.shaping import Shaping


class WiredTransport(Transport):
    """One node's end of a data plane: a long-lived stream to every neighbour, opened with a signed identity.

    `async with` starts it, and stops it, or aborts it after an error.
    """

    lengths: ClassVar[Lengths]  # of its messages

    def __init__(  # noqa: D417 - identity and clock are what their types say
        self,
        addresses: Mapping[str, Address],
        identity: Identity,
        clock: Clock,
        timeout_s: float,
        run_s: float,
        shaping: Shaping | None = None,
        encrypt: bool = False,
    ) -> None:
        """Nothing is opened yet.

        Args:
            addresses: of all nodes, by name.
            timeout_s: virtual seconds for one message.
            run_s: virtual seconds that a stream may live.
            shaping: what the kernel does not do to messages; None when it does everything.
            encrypt: TLS on the streams as well.
        """
        self.traffic = Traffic()
        self.piece_bytes = (shaping and shaping.piece_bytes) or self.lengths.largest
        self.finest_bytes = self.lengths.finest
        self._addresses = addresses
        self._identity = identity
        self._clock = clock
        self._timeout_s = timeout_s
        self._timeout_wall_s = clock.wall(timeout_s)
        self._run_wall_s = clock.wall(run_s)
        self._shaping = shaping
        self._tls = identity if encrypt else None
        self._mailbox = Mailbox(timeout_s, clock.wall(1.0))

    @abstractmethod
    async def start(self) -> None:
        """Listen on the data network.

        Raises:
            Unreachable: the address can't be had.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Return when neighbours have taken everything, and have sent everything.

        A stream on which a message was broken off here is left out: its sender has given it up, or knows the error.

        Raises:
            NetworkError: a neighbour has ended its side before, or does not end it.
        """

    @abstractmethod
    async def abort(self) -> None:
        """Hang up on everybody who sends here: nothing is left to wait for. What has stopped stays as it is."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                await self.stop()
        finally:
            await self.abort()

    @abstractmethod
    async def _write(self, to: str, message: Message) -> None:
        """Hand a message that its link passes now to the stream of `to`."""

    async def send(self, to: str, message: Message) -> None:
        self.traffic.count(to, message.size, PREFIX_BYTES)
        if self._shaping is None:
            return await self._write(to, message)
        async with self._shaping.leaving(to, message.size) as passage:
            return await self._write(to, message._replace(sent_at=passage.begins, passed_at=passage.ends))

    async def recv(self, source: str, *tags: Tag, into: memoryview | None = None) -> Message:
        return await self._mailbox.take(source, *tags, into=into)

    def recv_then(self, source: str, tag: Tag, then: Then, into: memoryview | None = None) -> Awaited | None:
        return self._mailbox.expect(source, (tag,), then, into)

    async def _arrive(self, source: str, message: Message) -> None:
        """Deliver a message when its link has carried it; returns when the next one may come in."""
        if self._shaping is None:
            self._mailbox.deliver(source, message)
            return
        passage = Passage(message.sent_at, message.passed_at)
        due = await self._shaping.entering(source, passage, message.size)
        wait_s = self._clock.wall(max(0.0, due - self._clock.now()))
        asyncio.get_running_loop().call_later(wait_s, self._mailbox.deliver, source, message)
