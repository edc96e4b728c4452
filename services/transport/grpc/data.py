"""Bulk messages over gRPC: one long-lived stream to every neighbour, opened with the sender's signed identity."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import grpc

from services.cluster.addresses import Address
from services.cluster.message_lengths import GRPC, Lengths
from services.runtime.clock import Clock
from services.runtime.identity import Identity
from services.runtime.transport import Message, Stage, Tag
from services.schema.errors import DeadlineExceeded, Refused, Unreachable
from services.transport.codec import decode, encode
from services.transport.deadlines import Patience
from services.transport.grpc.channels import OPTIONS, channel, listen, ours, translated
from services.transport.shaping import Shaping
from services.transport.turns import Turns
from services.transport.wired import WiredTransport
from services.wire.data_pb2 import Delivered

METHOD = "/ensayo.wire.Data/Push"
IDENTITY_KEY = "ensayo-identity-bin"


class _Stream:
    """An open stream; one message at a time is written to it, and a message given up is the end of the stream."""

    def __init__(self, opened: grpc.aio.Channel, call: Any, wall_s: float) -> None:
        self.channel = opened
        self.call = call
        self.turns = Turns()
        self.patience = Patience(wall_s, self._give_up)
        self.sent = 0  # messages
        self.writer: asyncio.Task[Any] | None = None
        self.given_up = False

    def _give_up(self) -> None:
        assert self.writer is not None  # noqa: S101 - patience lasts while somebody writes
        self.given_up = True
        self.writer.cancel()


class GrpcTransport(WiredTransport):
    """One node's end of the data plane over gRPC."""

    lengths: ClassVar[Lengths] = GRPC

    def __init__(
        self,
        addresses: Mapping[str, Address],
        identity: Identity,
        clock: Clock,
        timeout_s: float,
        run_s: float,
        shaping: Shaping | None = None,
        encrypt: bool = False,
    ) -> None:
        """Nothing is opened yet; the arguments are those of every data plane."""
        super().__init__(addresses, identity, clock, timeout_s, run_s, shaping, encrypt)
        self._streams: dict[str, _Stream] = {}
        self._server = grpc.aio.server(options=OPTIONS)

    async def start(self) -> None:
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
        for peer, stream in self._streams.items():
            await self._close(peer, stream)
        await self._server.stop(self._run_wall_s)  # others may have steps to go

    async def abort(self) -> None:
        """A server that is left running complains when the process ends, later than whoever says why."""
        await self._server.stop(None)

    async def _close(self, peer: str, stream: _Stream) -> None:
        try:
            async with ours(peer), asyncio.timeout(self._timeout_wall_s):
                await stream.turns.take(0)  # a message that nobody waits for may still be under way
                if stream.call.cancelled():  # by whoever broke off a message here
                    await stream.channel.close()
                    return
                with suppress(asyncio.InvalidStateError):  # the neighbour has ended; its answer tells
                    await stream.call.write(encode(Message(Tag(0, Stage.END))))
                    await stream.call.done_writing()
                delivered = await stream.call
        except TimeoutError:
            raise DeadlineExceeded(f"{peer} did not take the end of a stream within {self._timeout_s:g} s") from None
        if delivered.parts < stream.sent:
            raise Unreachable(f"{peer} took {delivered.parts} of {stream.sent} messages")
        await stream.channel.close()

    async def _write(self, to: str, message: Message) -> None:
        stream = self._streams.get(to) or self._open(to)
        await stream.turns.take(message.size)
        stream.writer = asyncio.current_task()
        stream.patience.begin()
        try:
            await stream.call.write(encode(message))  # built now: messages that wait cost no memory
            stream.sent += 1
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            await self._explain(to, stream)
            raise
        finally:
            stream.patience.end()
            stream.turns.give_back()

    async def _explain(self, to: str, stream: _Stream) -> None:
        """Why a message could not be written; nothing when it was the sender who did not want to any more.

        Raises:
            DeadlineExceeded: the neighbour did not take it in time.
            NetworkError: the stream has ended.
        """
        if stream.given_up:
            stream.call.cancel()
            if stream.writer is not None:
                stream.writer.uncancel()
            raise DeadlineExceeded(f"{to} did not take a message within {self._timeout_s:g} s") from None
        if not stream.call.done() or (stream.writer is not None and stream.writer.cancelling()):
            return
        if stream.call.cancelled():
            raise Unreachable(f"a message to {to} was broken off, and none can follow it")
        try:
            await stream.call
        except grpc.aio.AioRpcError as error:
            raise translated(to, error) from error
        raise Unreachable(f"{to} has ended the stream")

    def _open(self, to: str) -> _Stream:
        opened = channel(self._addresses[to], to, self._tls)
        method = opened.stream_unary(METHOD, None, Delivered.FromString)
        proof = ((IDENTITY_KEY, self._identity.prove(to)),)
        call = method(metadata=proof, timeout=self._run_wall_s, wait_for_ready=True)
        self._streams[to] = _Stream(opened, call, self._timeout_wall_s)
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
