"""Bulk messages over bare TCP: one long-lived stream to every neighbour, opened with the sender's signed identity."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from services.cluster.message_lengths import TCP, Lengths
from services.runtime.transport import Buffer, Message, Sending, Stage, Tag
from services.schema.errors import DeadlineExceeded, Unreachable
from services.transport.codec import PREFIX_BYTES, prefix
from services.transport.tcp import tls
from services.transport.tcp.receiver import Inlet
from services.transport.tcp.sender import COUNT, Line, dial
from services.transport.turns import Turns
from services.transport.wired import WiredTransport


@dataclass
class _Stream:
    """A stream to a neighbour; one message at a time is written to it."""

    line: asyncio.Task[Line]  # opens it once, for all who want to send
    turns: Turns = field(default_factory=Turns)
    sent: int = 0  # messages
    is_broken: bool = False  # a message was broken off

    @property
    def is_open(self) -> bool:
        """Whether somebody listens, and did not refuse."""
        return not self.is_broken and self.line.done() and not self.line.cancelled() and self.line.exception() is None

    def over(self, *, broken_off: bool) -> None:
        """A message is written, or never will be."""
        if broken_off:
            self.hang_up()
        else:
            self.sent += 1
        self.turns.give_back()

    def hang_up(self) -> None:
        """Half a message has been written, or nobody reads: no other can follow it."""
        if self.is_open:
            self.line.result().close()
        self.is_broken = True


class TcpTransport(WiredTransport):
    """One node's end of the data plane over bare TCP."""

    lengths: ClassVar[Lengths] = TCP

    async def start(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._inlets: set[Inlet] = set()
        address = self._addresses[self._identity.name]
        context = None if self._tls is None else tls.server(self._tls)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._inlet, address.host, address.port, ssl=context)
        except OSError as error:
            raise Unreachable(f"can't listen on {address}: {error}") from error

    async def connect(self, names: Iterable[str]) -> None:
        """Open the streams: handshakes inside the first step would make all paced nodes of this host late."""
        for name in names:
            try:
                async with asyncio.timeout(self._run_wall_s):
                    await self._open(name).line
            except (TimeoutError, OSError) as error:
                raise Unreachable(f"{name}: {error or 'it was not there in time'}") from error

    async def stop(self) -> None:
        for peer, stream in self._streams.items():
            await self._close(peer, stream)
        self._server.close()
        if self._inlets:  # others may have steps to go
            await asyncio.wait([inlet.over for inlet in self._inlets], timeout=self._run_wall_s)
        await self.abort()

    async def abort(self) -> None:
        self._server.close()
        for inlet in tuple(self._inlets):
            inlet.abort()

    async def _close(self, peer: str, stream: _Stream) -> None:
        """Say the last word and hear how much has come."""
        try:
            async with asyncio.timeout(self._timeout_wall_s):
                await stream.turns.take(0)  # a message that nobody waits for may still be under way
                if stream.is_broken:
                    return
                line = await stream.line
                await line.put(prefix(Message(Tag(0, Stage.END))))
                (count,) = COUNT.unpack(await line.get(COUNT.size))
        except TimeoutError:
            raise DeadlineExceeded(f"{peer} did not take the end of a stream within {self._timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"{peer}: {error}") from error
        if count < stream.sent:
            raise Unreachable(f"{peer} took {count} of {stream.sent} messages")
        line.close()

    async def _write(self, to: str, message: Message) -> None:
        stream = self._streams.get(to) or self._open(to)
        await stream.turns.take(message.size)
        try:
            if stream.is_broken:
                raise Unreachable(f"a message to {to} was broken off, and none can follow it")
            await self._put(stream, prefix(message), message.data)
            stream.sent += 1
        except TimeoutError:
            stream.hang_up()
            raise DeadlineExceeded(f"{to} did not take a message within {self._timeout_s:g} s") from None
        except OSError as error:
            stream.hang_up()
            raise Unreachable(f"{to}: {error}") from error
        except asyncio.CancelledError:
            stream.hang_up()  # half a message may be under way, behind which no other can be read
            raise
        finally:
            stream.turns.give_back()

    def send_soon(self, to: str, message: Message) -> Sending | None:
        """What the kernel takes at once needs no task; of others, each has one."""
        stream = self._streams.get(to)
        if self._shaping or stream is None or not stream.is_open or not stream.turns.take_now():
            return super().send_soon(to, message)
        self.traffic.count(to, message.size, PREFIX_BYTES)
        try:
            left = stream.line.result().put_at_once(prefix(message), message.data)
        except OSError as error:
            stream.over(broken_off=True)
            raise Unreachable(f"{to}: {error}") from error
        if not left:
            stream.over(broken_off=False)
            return None
        rest = asyncio.get_running_loop().create_task(self._rest(to, stream, left))
        rest.add_done_callback(lambda task: stream.over(broken_off=task.cancelled() or task.exception() is not None))
        return rest

    async def _rest(self, to: str, stream: _Stream, left: Sequence[Buffer]) -> None:
        try:
            async with asyncio.timeout(self._timeout_wall_s):
                await stream.line.result().put(*left)
        except TimeoutError:
            raise DeadlineExceeded(f"{to} did not take a message within {self._timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"{to}: {error}") from error

    async def _put(self, stream: _Stream, *buffers: Buffer) -> None:
        """Time is taken of what the kernel does not take at once: a timer costs more than the rest of a write."""
        left = stream.line.result().put_at_once(*buffers) if stream.line.done() else buffers
        if left:
            async with asyncio.timeout(self._timeout_wall_s):
                await (await stream.line).put(*left)

    def _open(self, to: str) -> _Stream:
        context = None if self._tls is None else tls.client(self._tls)
        dialling = dial(self._addresses[to], to, context, self._identity.prove(to))
        self._streams[to] = _Stream(asyncio.get_running_loop().create_task(dialling))
        return self._streams[to]

    def _inlet(self) -> Inlet:
        """Somebody has come."""
        return Inlet(self._identity, self._mailbox, self._arrive if self._shaping else None, self._inlets)
