"""Data plane over bare TCP: one long-lived stream to every neighbour.

A stream is opened with the sender's signed identity.
"""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from services.cluster.links.message_lengths import TCP_MESSAGE_SIZE_LIMITS, MessageSizeLimits
from services.runtime.transport import Buffer, Message, MessageKind, MessageTag, SendFuture
from services.schema.errors import DeadlineExceeded, PeerUnreachable
from services.transport.codec import encode_message_prefix, make_padding_buffers
from services.transport.send_order import SmallMessagesFirstLock
from services.transport.socket_transport import SocketTransport
from services.transport.stream_authentication import StreamKeyAgreement
from services.transport.tcp import tls
from services.transport.tcp.receiver import MAX_UNIDENTIFIED_STREAMS, StreamReceiver
from services.transport.tcp.sender import COUNT_FORMAT, StreamSender, open_stream
from services.transport.tcp.tls_handshake import IncomingTlsHandshake


@dataclass
class _TcpSendStream:
    """Outgoing TCP stream to one neighbour.

    One message at a time is written to the stream.
    """

    sender_task: asyncio.Task[StreamSender]  # opens the stream once, for all messages
    write_lock: SmallMessagesFirstLock = field(default_factory=SmallMessagesFirstLock)
    sent_messages: int = 0
    is_broken: bool = False  # no more messages can be written

    @property
    def is_open(self) -> bool:
        """Whether messages can be written to this stream.

        The neighbour must have accepted the stream, and no message on it may have been cut off.
        """
        task = self.sender_task
        return not self.is_broken and task.done() and not task.cancelled() and task.exception() is None

    def finish_write(self, *, is_broken_off: bool) -> None:
        """Release the stream for the next message.

        Call this after a message has been written or has failed.
        """
        if is_broken_off:
            self.close_after_failure()
        else:
            self.sent_messages += 1
        self.write_lock.release()

    def close_after_failure(self) -> None:
        """Close the stream after an incomplete message or a connection error.

        No other message can follow on this stream.
        """
        if self.is_open:
            self.sender_task.result().close()
        self.is_broken = True


class TcpTransport(SocketTransport):
    """Transport of one node over bare TCP: sends messages to other nodes and receives theirs."""

    message_lengths: ClassVar[MessageSizeLimits] = TCP_MESSAGE_SIZE_LIMITS

    async def start(self) -> None:
        self._streams: dict[str, _TcpSendStream] = {}
        self._receivers: set[StreamReceiver] = set()
        address = self._addresses[self._identity.name]
        make_protocol = (
            self._make_receiver
            if self._tls is None
            else partial(self._make_tls_handshake, tls.make_server_tls_context(self._tls))
        )
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(make_protocol, address.host, address.port)
        except OSError as error:
            raise PeerUnreachable(f"can't listen on {address}: {error}") from error

    async def connect(self, node_names: Iterable[str]) -> None:
        """Open the streams to the given nodes before training starts.

        Without this call, handshakes would delay the first step.
        """
        for name in node_names:
            try:
                async with asyncio.timeout(self._stream_lifetime_wall_s):
                    await self._open_stream(name).sender_task
            except (TimeoutError, OSError) as error:
                raise PeerUnreachable(f"can't open a stream to {name}: {error or 'not accepted in time'}") from error

    async def stop(self) -> None:
        for peer_name, stream in self._streams.items():
            await self._close_stream(peer_name, stream)
        self._server.close()
        # Neighbours may still send. An unknown process that only keeps a connection open must not delay the end.
        if open_streams := [receiver.closed for receiver in self._receivers if receiver.is_identified]:
            await asyncio.wait(open_streams, timeout=self._stream_lifetime_wall_s)
        for receiver in tuple(self._receivers):
            receiver.refuse_if_unidentified()
        await self.abort()

    async def abort(self) -> None:
        self._server.close()
        for receiver in tuple(self._receivers):
            receiver.abort()

    def _drop_stream(self, target: str) -> None:
        if (stream := self._streams.pop(target, None)) is not None:
            stream.close_after_failure()
            stream.sender_task.cancel()  # which may still wait for the node to listen

    async def _close_stream(self, peer: str, stream: _TcpSendStream) -> None:
        """End a stream, and check how many messages the neighbour has received.

        The end-of-stream message makes the neighbour reply with the number of received messages.
        """
        try:
            async with asyncio.timeout(self._timeout_wall_s):
                await stream.write_lock.acquire(0)  # `start_send` may have left a message that is still being written
                if stream.is_broken:
                    return
                sender = await stream.sender_task
                end_of_stream = Message(MessageTag(0, MessageKind.END_OF_STREAM))
                await sender.write_to_socket(*self._encode_message_buffers(peer, sender, end_of_stream))
                (received_messages,) = COUNT_FORMAT.unpack(await sender.read_reply(COUNT_FORMAT.size))
        except TimeoutError:
            raise DeadlineExceeded(f"{peer} did not confirm the end of the stream in {self._timeout_s:g} s") from None
        except OSError as error:
            raise PeerUnreachable(f"the stream to {peer} broke off: {error}") from error
        if received_messages < stream.sent_messages:
            raise PeerUnreachable(f"{peer} received {received_messages} of {stream.sent_messages} sent messages")
        sender.close()

    async def _write_to_stream(self, target: str, message: Message) -> None:
        stream = self._streams.get(target) or self._open_stream(target)
        await stream.write_lock.acquire(self.size_on_wire(message))
        try:
            if stream.is_broken:
                raise PeerUnreachable(f"the stream to {target} has ended: an earlier message was broken off")
            await self._write_message(target, stream, message)
            stream.sent_messages += 1
        except TimeoutError:
            stream.close_after_failure()
            raise DeadlineExceeded(f"{target} did not accept a message within {self._timeout_s:g} s") from None
        except OSError as error:
            stream.close_after_failure()
            raise PeerUnreachable(f"the stream to {target} broke off: {error}") from error
        except asyncio.CancelledError:
            stream.close_after_failure()  # the neighbour can't read another message behind an incomplete one
            raise
        finally:
            stream.write_lock.release()

    def start_send(self, target: str, message: Message) -> SendFuture | None:
        """Write as much of a message as the kernel accepts at once.

        Start a task for the rest of the message, if there is any.
        """
        stream = self._streams.get(target)
        if self._shaping or stream is None or not stream.is_open or not stream.write_lock.try_acquire():
            return super().start_send(target, message)
        self._add_to_traffic(target, message)
        try:
            sender = stream.sender_task.result()
            unsent = sender.write_and_return_unsent(*self._encode_message_buffers(target, sender, message))
        except OSError as error:
            stream.finish_write(is_broken_off=True)
            raise PeerUnreachable(f"the stream to {target} broke off: {error}") from error
        if not unsent:
            stream.finish_write(is_broken_off=False)
            return None
        write_task = asyncio.get_running_loop().create_task(self._write_remaining_buffers(target, stream, unsent))
        write_task.add_done_callback(
            lambda task: stream.finish_write(is_broken_off=task.cancelled() or task.exception() is not None)
        )
        return write_task

    def _encode_message_buffers(self, target: str, sender: StreamSender, message: Message) -> tuple[Buffer, ...]:
        """Return the buffers to write for a message: prefix, payload and padding.

        Prefix and payload are each followed by their authentication tag if the stream has a key.
        """
        prefix = encode_message_prefix(message)
        payload = self._payload_on_wire(target, message)
        padding = make_padding_buffers(self._count_padding_bytes(message.size_bytes))
        if sender.authenticator is None:
            return (prefix, payload, *padding)
        prefix_tag = sender.authenticator.make_tag(prefix)
        payload_tag = sender.authenticator.make_tag(message.data) if message.size_bytes else b""
        return (prefix, prefix_tag, payload, payload_tag, *padding)

    def _count_tag_bytes(self, message: Message) -> int:
        tag_bytes = super()._count_tag_bytes(message)  # of the prefix
        return 2 * tag_bytes if message.size_bytes else tag_bytes

    async def _write_remaining_buffers(self, target: str, stream: _TcpSendStream, buffers: Sequence[Buffer]) -> None:
        """Write the part of a message that the kernel did not accept at once."""
        try:
            async with asyncio.timeout(self._timeout_wall_s):
                await stream.sender_task.result().write_to_socket(*buffers)
        except TimeoutError:
            raise DeadlineExceeded(f"{target} did not accept a message within {self._timeout_s:g} s") from None
        except OSError as error:
            raise PeerUnreachable(f"the stream to {target} broke off: {error}") from error

    async def _write_message(self, target: str, stream: _TcpSendStream, message: Message) -> None:
        """Write a message to a stream.

        A time limit starts only if the kernel does not accept all bytes at once. A timer costs more than the rest of a
        write.
        """
        if not stream.sender_task.done():
            async with asyncio.timeout(self._timeout_wall_s):
                sender = await stream.sender_task
                await sender.write_to_socket(*self._encode_message_buffers(target, sender, message))
            return
        sender = stream.sender_task.result()
        if unsent := sender.write_and_return_unsent(*self._encode_message_buffers(target, sender, message)):
            async with asyncio.timeout(self._timeout_wall_s):
                await sender.write_to_socket(*unsent)

    def _open_stream(self, target: str) -> _TcpSendStream:
        context = None if self._tls is None else tls.make_client_tls_context(self._tls)
        key_agreement = StreamKeyAgreement(self._identity, target) if self._authenticates_messages else None
        proof = key_agreement.identity_proof if key_agreement else self._identity.make_identity_proof(target)
        opening = open_stream(self._addresses[target], target, context, proof, key_agreement)
        self._streams[target] = _TcpSendStream(asyncio.get_running_loop().create_task(opening))
        return self._streams[target]

    def _make_receiver(self) -> StreamReceiver:
        """Return the receiver of a stream that another node has just opened."""
        return StreamReceiver(
            self._identity,
            self._mailbox,
            self._deliver if self._shaping else None,
            self._receivers,
            self._count_padding_bytes,
            payload_limit_bytes=self._payload_limit_bytes,
            max_unidentified_streams=max(MAX_UNIDENTIFIED_STREAMS, 2 * len(self._addresses)),
            record_rejection=self._record_rejection,
            authenticates_messages=self._authenticates_messages,
        )

    def _make_tls_handshake(self, tls_context: ssl.SSLContext) -> IncomingTlsHandshake:
        """Return the TLS handshake of a connection that another process has just opened."""
        return IncomingTlsHandshake(
            tls_context, self._make_receiver, partial(self._record_rejection, claimed_sender="")
        )
