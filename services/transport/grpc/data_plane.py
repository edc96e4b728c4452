"""Data plane over gRPC: one long-lived stream to every neighbour.

A stream is opened with the sender's signed identity.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, cast

import grpc

from services.cluster.addresses import Address
from services.cluster.links.message_lengths import GRPC_MESSAGE_SIZE_LIMITS, MessageSizeLimits
from services.runtime.clock import Clock
from services.runtime.identity import NodeIdentity, claimed_sender_name
from services.runtime.transport import Buffer, DataProtection, Message, MessageKind, MessageTag
from services.schema.errors import (
    AuthenticationError,
    DeadlineExceeded,
    MessageAuthenticationError,
    PeerUnreachable,
    ProtocolError,
)
from services.transport.codec import (
    PADDING_HEADER_BYTES,
    PREFIX_BYTES,
    decode_message,
    encode_message,
    encode_message_prefix,
    make_padding_buffers,
)
from services.transport.deadlines import DeadlineTimer
from services.transport.grpc.channels import (
    listen_on,
    make_stream_error,
    open_channel,
    server_options,
    translate_grpc_errors,
)
from services.transport.grpc.checked_calls import has_grpc_ended_call
from services.transport.send_order import SmallMessagesFirstLock
from services.transport.shaping import TransportShaping
from services.transport.socket_transport import HANDSHAKE_TIMEOUT_S, SocketTransport
from services.transport.stream_authentication import (
    TAG_BYTES,
    MessageAuthenticator,
    StreamKeyAgreement,
    reply_to_key_agreement,
)
from services.wire.data_pb2 import StreamReceipt

SEND_METHOD = "/ensayo.wire.Data/SendMessages"
STOP_GRACE_S = 1.0  # wall seconds in which the last replies can reach their nodes
IDENTITY_METADATA_KEY = "ensayo-identity-bin"
KEY_REPLY_METADATA_KEY = "ensayo-key-reply-bin"


class _GrpcSendStream:
    """Outgoing gRPC stream to one neighbour, for one message at a time.

    Cancelling a message ends the stream.
    """

    def __init__(
        self, channel: grpc.aio.Channel, call: Any, timeout_wall_s: float, key_agreement: StreamKeyAgreement | None
    ) -> None:
        self.channel = channel
        self.call = call
        self.write_lock = SmallMessagesFirstLock()
        self.deadline_timer = DeadlineTimer(timeout_wall_s, self._cancel_write)
        self.sent_messages = 0
        self.key_agreement = key_agreement  # None if messages have no authentication tags
        self.authenticator: MessageAuthenticator | None = None  # after the agreement
        self.writing_task: asyncio.Task[Any] | None = None
        self.has_timed_out = False

    def _cancel_write(self) -> None:
        assert self.writing_task is not None  # noqa: S101 - the timer runs only while a task writes
        self.has_timed_out = True
        self.writing_task.cancel()


class GrpcTransport(SocketTransport):
    """Transport of one node over gRPC: sends messages to other nodes and receives theirs."""

    message_lengths: ClassVar[MessageSizeLimits] = GRPC_MESSAGE_SIZE_LIMITS

    def __init__(
        self,
        addresses: Mapping[str, Address],
        identity: NodeIdentity,
        clock: Clock,
        timeout_s: float,
        stream_lifetime_s: float,
        shaping: TransportShaping | None = None,
        protection: DataProtection = "signed",
        payload_scale: float = 1.0,
    ) -> None:
        """Create a transport that has no open streams yet.

        `SocketTransport` describes the arguments.
        """
        super().__init__(addresses, identity, clock, timeout_s, stream_lifetime_s, shaping, protection, payload_scale)
        self._streams: dict[str, _GrpcSendStream] = {}
        self._dropped_channels: list[grpc.aio.Channel] = []  # to nodes that were lost
        self._receiving: dict[asyncio.Task[Any], str] = {}  # one task per open stream -> its verified sender
        self._newest_receiving: dict[str, asyncio.Task[Any]] = {}  # sender -> task of its last stream

    def _wire_limit_bytes(self) -> int:
        """Return the limit of payload and padding together: the shortest padded piece has one entry of eight bytes."""
        if not self._sends_padding:
            return self._payload_limit_bytes
        padded_entry_bytes = 8 + self._count_padding_bytes(8)
        return max(self._payload_limit_bytes, 2 * self.max_piece_bytes, 2 * padded_entry_bytes)

    def _message_limit_bytes(self) -> int:
        """Return the length of the longest message that gRPC accepts."""
        return PREFIX_BYTES + PADDING_HEADER_BYTES + TAG_BYTES + self._wire_limit_bytes()

    async def start(self) -> None:
        options = server_options(self._message_limit_bytes(), HANDSHAKE_TIMEOUT_S, idle_timeout_s=HANDSHAKE_TIMEOUT_S)
        self._server = grpc.aio.server(options=options)
        handler = grpc.stream_unary_rpc_method_handler(self._receive_stream, None, StreamReceipt.SerializeToString)
        service, method = SEND_METHOD.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        listen_on(self._server, self._addresses[self._identity.name], self._tls)
        await self._server.start()

    async def connect(self, node_names: Iterable[str]) -> None:
        """Open the streams to the given nodes before training starts.

        Without this call, handshakes would delay the first step.
        """
        for name in node_names:
            stream = self._open_stream(name)
            async with translate_grpc_errors(name):
                await stream.call.wait_for_connection()
                await self._agree_on_key(name, stream)

    async def stop(self) -> None:
        for peer_name, stream in self._streams.items():
            with self._ignore_lost_peer():
                await self._close_stream(peer_name, stream)
        for channel in self._dropped_channels:
            await channel.close()
        if receiving := [task for task, source in self._receiving.items() if source not in self._lost_peers]:
            await asyncio.wait(receiving, timeout=self._stream_lifetime_wall_s)  # neighbours may still send
        # gRPC also waits for connections of unknown processes, which must not delay the end by more than this.
        await self._server.stop(STOP_GRACE_S)

    async def abort(self) -> None:
        """Stop the gRPC server at once.

        The server then logs no errors when the process ends.
        """
        await self._server.stop(None)

    def _drop_stream(self, target: str) -> None:
        if (stream := self._streams.pop(target, None)) is not None:
            stream.call.cancel()
            self._dropped_channels.append(stream.channel)

    async def _close_stream(self, peer: str, stream: _GrpcSendStream) -> None:
        try:
            async with asyncio.timeout(self._timeout_wall_s):
                await stream.write_lock.acquire(0)  # `start_send` may have left a message that is still being written
                if stream.call.cancelled():  # because a message was broken off at this node
                    return
                with suppress(asyncio.InvalidStateError):  # the neighbour has ended the call; its reply says why
                    await self._agree_on_key(peer, stream)
                    end_of_stream = Message(MessageTag(0, MessageKind.END_OF_STREAM))
                    await stream.call.write(_encode_for_stream(stream, end_of_stream, b"", padding_bytes=0))
                    await stream.call.done_writing()
                receipt = await stream.call
        except grpc.aio.AioRpcError as error:
            raise make_stream_error(peer, error) from error
        except TimeoutError:
            raise DeadlineExceeded(f"{peer} did not confirm the end of the stream in {self._timeout_s:g} s") from None
        finally:
            await stream.channel.close()
        if receipt.messages < stream.sent_messages:
            raise PeerUnreachable(f"{peer} received {receipt.messages} of {stream.sent_messages} sent messages")

    async def _write_to_stream(self, target: str, message: Message) -> None:
        stream = self._streams.get(target) or self._open_stream(target)
        await stream.write_lock.acquire(self.size_on_wire(message))
        stream.writing_task = asyncio.current_task()
        stream.deadline_timer.start()
        try:
            await self._agree_on_key(target, stream)
            # Encoded only now: waiting messages cost no memory.
            padding_bytes = self._count_padding_bytes(message.size_bytes)
            payload = self._payload_on_wire(target, message)
            await stream.call.write(_encode_for_stream(stream, message, payload, padding_bytes))
            stream.sent_messages += 1
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            await self._raise_write_error(target, stream)
            raise
        finally:
            stream.deadline_timer.stop()
            stream.write_lock.release()

    async def _raise_write_error(self, target: str, stream: _GrpcSendStream) -> None:
        """Raise the error of a message that could not be written.

        Return if the sender has cancelled the message.

        Raises:
            DeadlineExceeded: the neighbour did not accept the message in time.
            NetworkError: the stream has ended.
        """
        if stream.has_timed_out:
            stream.call.cancel()
            if stream.writing_task is not None:
                stream.writing_task.uncancel()
            raise DeadlineExceeded(f"{target} did not accept a message within {self._timeout_s:g} s") from None
        if not stream.call.done() or (stream.writing_task is not None and stream.writing_task.cancelling()):
            return
        if stream.call.cancelled():
            raise PeerUnreachable(f"the stream to {target} has ended: an earlier message was broken off")
        try:
            await stream.call
        except grpc.aio.AioRpcError as error:
            raise make_stream_error(target, error) from error
        raise PeerUnreachable(f"{target} has ended the stream")

    def _open_stream(self, target: str) -> _GrpcSendStream:
        channel = open_channel(self._addresses[target], target, self._tls)
        method = channel.stream_unary(SEND_METHOD, None, StreamReceipt.FromString)
        key_agreement = StreamKeyAgreement(self._identity, target) if self._authenticates_messages else None
        proof = key_agreement.identity_proof if key_agreement else self._identity.make_identity_proof(target)
        metadata = ((IDENTITY_METADATA_KEY, proof),)
        call = method(metadata=metadata, timeout=self._stream_lifetime_wall_s, wait_for_ready=True)
        self._streams[target] = _GrpcSendStream(channel, call, self._timeout_wall_s, key_agreement)
        return self._streams[target]

    async def _agree_on_key(self, target: str, stream: _GrpcSendStream) -> None:
        """Complete the agreement on the key of a stream, if its messages have authentication tags.

        Raises:
            AuthenticationError: the reply of the neighbour is missing or not valid.
            AioRpcError: the neighbour has refused the stream.
        """
        if stream.key_agreement is None or stream.authenticator is not None:
            return
        reply = dict(await stream.call.initial_metadata() or ()).get(KEY_REPLY_METADATA_KEY)
        if reply is None and stream.call.done():
            await stream.call  # raises the error for which the neighbour has ended the stream
        try:
            stream.authenticator = stream.key_agreement.complete(reply or b"")
        except AuthenticationError as error:
            self._record_rejection(str(error), target)
            stream.call.cancel()
            raise

    def _track_receiving_task(self, source: str) -> None:
        """Make `stop` wait for the current task, which receives a stream of a verified sender."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._receiving[task], self._newest_receiving[source] = source, task
        task.add_done_callback(self._receiving.pop)

    async def _receive_stream(self, encoded_messages: AsyncIterator[bytes], grpc_context: Any) -> StreamReceipt:
        """Receive the messages of one neighbour until the stream ends, and return their number.

        An early end is a failure only if the stream has had a message and is the newest of its sender. A worker that
        was started again closes its unused streams to other workers that were started again.
        """
        if self._connections is not None:
            self._connections.note_call(grpc_context.peer())
        source, authenticator = await self._verify_opening(grpc_context)
        message_count, has_ended = 0, False
        self._track_receiving_task(source)
        try:
            async for encoded_message in encoded_messages:
                message = _decode_from_stream(authenticator, encoded_message)
                has_ended = message.tag.kind == MessageKind.END_OF_STREAM
                if not has_ended:
                    await self._deliver(source, message)
                    message_count += 1
            if not has_ended and has_grpc_ended_call(grpc_context):
                limit = f"the limit of {self._message_limit_bytes():,} bytes"
                self._record_rejection(f"a message is longer than {limit}", source)
        except (MessageAuthenticationError, ProtocolError) as error:
            self._record_rejection(str(error), source)
            await grpc_context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            is_newest = self._newest_receiving[source] is asyncio.current_task()
            if message_count and is_newest and not has_ended:  # gRPC raises no error when the sender is gone
                self._mailbox.mark_source_failed(source, PeerUnreachable(f"{source} broke off its stream"))
        return StreamReceipt(messages=message_count)

    async def _verify_opening(self, grpc_context: Any) -> tuple[str, MessageAuthenticator | None]:
        """Return the sender of a new stream, and what verifies its messages if they carry tags; or abort the call."""
        proof = dict(grpc_context.invocation_metadata()).get(IDENTITY_METADATA_KEY)
        authenticator = None
        try:
            source = self._identity.verify_identity_proof(proof)
            if self._authenticates_messages:
                reply, authenticator = reply_to_key_agreement(self._identity, source, proof or b"")
                await grpc_context.send_initial_metadata(((KEY_REPLY_METADATA_KEY, reply),))
        except AuthenticationError as error:
            self._record_rejection(str(error), claimed_sender_name(proof))
            await grpc_context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        return source, authenticator


def _encode_for_stream(stream: _GrpcSendStream, message: Message, payload_on_wire: Buffer, padding_bytes: int) -> bytes:
    """Return a message as bytes, followed by its authentication tag if the stream has a key.

    The tag is that of the message. `payload_on_wire` is sent instead of its payload, and differs from it only if an
    event corrupts the message.
    """
    if stream.authenticator is None:
        return encode_message(message._replace(data=payload_on_wire), padding_bytes)
    prefix, padding = encode_message_prefix(message), make_padding_buffers(padding_bytes)
    tag = stream.authenticator.make_tag(prefix, message.data, *padding)
    return b"".join((prefix, payload_on_wire, *padding, tag))


def _decode_from_stream(authenticator: MessageAuthenticator | None, encoded_message: bytes) -> Message:
    """Decode a received message; first verify its authentication tag if the stream has a key.

    Raises:
        MessageAuthenticationError: the tag is missing or wrong.
        ProtocolError: the bytes are not a message.
    """
    if authenticator is None:
        return decode_message(encoded_message)
    content = memoryview(encoded_message)
    authenticator.verify_tag(content[:-TAG_BYTES], content[-TAG_BYTES:])
    return decode_message(content[:-TAG_BYTES])
