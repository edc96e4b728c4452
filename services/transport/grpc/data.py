"""Bulk messages over gRPC: one long-lived stream to every neighbour, opened with the sender's signed identity."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from services.clock import Clock
from services.errors import DeadlineExceeded, Refused, Unreachable
from services.identity import Identity
from services.links import Passage
from services.plan import Address
from services.transport.base import Message, Stage, Tag, Traffic, Transport
from services.transport.grpc.channels import OPTIONS, channel, listen, ours
from services.transport.mailbox import Mailbox
from services.transport.shaping import Shaping
from services.wire.codec import decode, encode
from services.wire.data_pb2 import Delivered

METHOD = "/ensayo.wire.Data/Push"
IDENTITY_KEY = "ensayo-identity-bin"
PIECE_BYTES = 1 << 20  # larger messages leave the cache, smaller ones cost more per byte: gRPC is fastest at 1-2 MiB


@dataclass
class _Stream:
    """An open stream; one message at a time is written to it."""

    channel: grpc.aio.Channel
    call: Any
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    sent: int = 0  # messages


class GrpcTransport(Transport):
    """One node's end of the data plane."""

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
        self.piece_bytes = (shaping and shaping.piece_bytes) or PIECE_BYTES
        self._addresses = addresses
        self._identity = identity
        self._clock = clock
        self._timeout_s = timeout_s
        self._run_wall_s = clock.wall(run_s)
        self._shaping = shaping
        self._tls = identity if encrypt else None
        self._mailbox = Mailbox(timeout_s, clock.wall(1.0))
        self._streams: dict[str, _Stream] = {}
        self._server = grpc.aio.server(options=OPTIONS)

    async def start(self) -> None:
        """Listen on the data network."""
        handler = grpc.stream_unary_rpc_method_handler(self._receive, None, Delivered.SerializeToString)
        service, method = METHOD.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        listen(self._server, self._addresses[self._identity.name], self._tls)
        await self._server.start()

    async def connect(self, names: Iterable[str]) -> None:
        """Open the streams: handshakes inside the first step would make all paced nodes of this host late."""
        for name in names:
            stream = self._open(name)
            async with ours(name):
                await stream.call.wait_for_connection()

    async def stop(self) -> None:
        """Return when neighbours have taken everything, and have sent everything.

        Raises:
            NetworkError: a neighbour has ended its side before, or does not end it.
        """
        for peer, stream in self._streams.items():
            await self._close(peer, stream)
        await self._server.stop(self._run_wall_s)  # others may have steps to go

    async def _close(self, peer: str, stream: _Stream) -> None:
        try:
            async with ours(peer), asyncio.timeout(self._clock.wall(self._timeout_s)):
                with suppress(asyncio.InvalidStateError):  # the neighbour has ended; its answer tells
                    await stream.call.write(encode(Message(Tag(0, Stage.END))))
                    await stream.call.done_writing()
                delivered = await stream.call
        except TimeoutError:
            raise DeadlineExceeded(f"{peer} did not take the end of a stream within {self._timeout_s:g} s") from None
        if delivered.parts < stream.sent:
            raise Unreachable(f"{peer} took {delivered.parts} of {stream.sent} messages")
        await stream.channel.close()

    async def send(self, to: str, message: Message) -> None:
        if self._shaping is None:
            return await self._write(to, message)
        async with self._shaping.leaving(to, message.size) as passage:
            return await self._write(to, replace(message, sent_at=passage.begins, passed_at=passage.ends))

    async def _write(self, to: str, message: Message) -> None:
        stream = self._streams.get(to) or self._open(to)
        part = encode(message)
        self.traffic.count(to, message.size, len(part) - message.size)
        try:
            async with stream.lock, ours(to), asyncio.timeout(self._clock.wall(self._timeout_s)):
                await stream.call.write(part)
                stream.sent += 1
        except TimeoutError:
            raise DeadlineExceeded(f"{to} did not take a message within {self._timeout_s:g} s") from None
        except asyncio.InvalidStateError:  # what gRPC raises on a stream that has ended
            async with ours(to):
                await stream.call
            raise Unreachable(f"{to} has ended the stream") from None

    async def recv(self, source: str, *tags: Tag) -> Message:
        return await self._mailbox.take(source, *tags)

    def _open(self, to: str) -> _Stream:
        opened = channel(self._addresses[to], to, self._tls)
        method = opened.stream_unary(METHOD, None, Delivered.FromString)
        proof = ((IDENTITY_KEY, self._identity.prove(to)),)
        self._streams[to] = _Stream(opened, method(metadata=proof, timeout=self._run_wall_s, wait_for_ready=True))
        return self._streams[to]

    async def _receive(self, parts: AsyncIterator[bytes], context: Any) -> Delivered:
        """One neighbour's stream, until it has no more to send."""
        try:
            source = self._identity.check(dict(context.invocation_metadata()).get(IDENTITY_KEY))
        except Refused as refusal:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refusal))
        count, ended = 0, False
        try:
            async for part in parts:
                message = decode(part)
                ended = message.tag.stage == Stage.END
                if not ended:
                    await self._arrive(source, message)
                    count += 1
        finally:
            if not ended:  # gRPC ends the iteration as if all were well when the other side is gone
                self._mailbox.fail(source, Unreachable(f"{source} broke off its stream"))
        return Delivered(parts=count)

    async def _arrive(self, source: str, message: Message) -> None:
        """Deliver a message when its link has carried it."""
        if self._shaping is None:
            self._mailbox.deliver(source, message)
            return
        passage = Passage(message.sent_at, message.passed_at)
        due = await self._shaping.entering(source, passage, message.size)
        wait_s = self._clock.wall(max(0.0, due - self._clock.now()))
        asyncio.get_running_loop().call_later(wait_s, self._mailbox.deliver, source, message)
