"""Receiving end of a connection of a TCP stream.

The receiver verifies the sender's identity, delivers its messages to the mailbox and acknowledges them.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import numpy as np

from services.runtime.identity import NodeIdentity, claimed_sender_name
from services.runtime.transport import Message, MessageKind
from services.schema.errors import AuthenticationError, MessageAuthenticationError, ProtocolError
from services.transport.codec import (
    PADDING_HEADER_BYTES,
    PREFIX_BYTES,
    build_message,
    count_payload_bytes,
    decode_message_prefix,
    encode_padding_header,
    message_tag,
)
from services.transport.mailbox import Mailbox
from services.transport.socket_transport import DEFAULT_PAYLOAD_LIMIT_BYTES, HANDSHAKE_TIMEOUT_S
from services.transport.stream_authentication import TAG_BYTES, MessageAuthenticator, reply_to_key_agreement
from services.transport.streams.received_streams import (
    OPENING_BYTES,
    ReceivedStream,
    ReceivedStreams,
    StreamOpening,
)
from services.transport.tcp.sender import COMPLETION, COUNT_FORMAT, LENGTH_FORMAT

HEAD_BYTES = COUNT_FORMAT.size + PREFIX_BYTES  # of a message: its number in the stream and its prefix
MAX_PROOF_BYTES = 64 << 10  # accepted from a sender that is not known yet
# Size of the read buffer for small parts: a small message takes one system call, a large one is hardly copied.
READ_AHEAD_BYTES = 16 << 10
MAX_READS_PER_TURN = 8  # from one stream before other streams are served
DISCARDED_BYTES = memoryview(bytearray(1 << 20))  # every receiver writes padding there; it is not read
PAYLOAD_ALIGNMENT_BYTES = 64  # payloads begin at multiples of this address, where vector units read them fastest

# A receiver acknowledges its messages when it has got so many bytes since the last acknowledgement, or so many wall
# seconds after the first of them. Senders keep copies of what is not acknowledged.
ACKNOWLEDGED_BYTES = 1 << 20
ACKNOWLEDGEMENT_DELAY_S = 0.05

MAX_UNIDENTIFIED_STREAMS = 256  # streams whose senders have not yet proved their identity

UNKNOWN_STREAM_COUNT = (1 << 64) - 1  # sent instead of a count to a sender that continues a stream unknown here

DeliverMessage = Callable[[str, Message], Awaitable[None]]
RecordRejection = Callable[[str, str], None]  # is called with the reason and the name that the sender claims


class UnknownStreamError(ProtocolError):
    """Error because a sender continues a stream that this node does not know."""


class StreamReceiver(asyncio.BufferedProtocol):
    """Connection of an incoming stream from one neighbour.

    A message that is not acceptable ends the connection, as a fault of the network does; its sender then opens another
    one and sends the message again.

    Large payloads are received directly into the memory of the vector. The generator `_stream_parser` defines the
    format of the stream: it yields each buffer to fill, and continues when the buffer is full.
    """

    def __init__(  # noqa: PLR0913 - what all connections of a node have in common
        self,
        identity: NodeIdentity,
        mailbox: Mailbox,
        deliver: DeliverMessage | None,
        receivers: set["StreamReceiver"],
        streams: ReceivedStreams,
        count_padding_bytes: Callable[[int], int] = lambda _payload_bytes: 0,
        *,
        payload_limit_bytes: int = DEFAULT_PAYLOAD_LIMIT_BYTES,
        max_unidentified_streams: int = MAX_UNIDENTIFIED_STREAMS,
        record_rejection: RecordRejection = lambda _reason, _claimed_sender: None,
        authenticates_messages: bool = False,
    ) -> None:
        """Create the receiver of a stream that is not connected yet.

        Args:
            identity: of this node.
            mailbox: of this node.
            deliver: delays a message as the emulated network would, then delivers it; None without shaping.
            receivers: receivers of all connections; this one is a member from its handshake to its end.
            streams: streams of this node, over all of their connections.
            count_padding_bytes: returns the number of zeros that follow a payload of a given length; by default none.
            payload_limit_bytes: longest payload that is accepted in one message.
            max_unidentified_streams: streams without a verified sender that may be open at the same time.
            record_rejection: records why the stream, or a message in it, was refused.
            authenticates_messages: whether each message must have the authentication tags of its sender.
        """
        self._identity = identity
        self._mailbox = mailbox
        self._deliver_shaped = deliver
        self._open_receivers = receivers
        self._streams = streams
        self._stream: ReceivedStream | None = None  # from the handshake on
        self._count_padding_bytes = count_padding_bytes
        self._payload_limit_bytes = payload_limit_bytes
        self._max_unidentified_streams = max_unidentified_streams
        self._record_rejection = record_rejection
        self._authenticates_messages = authenticates_messages
        self._authenticator: MessageAuthenticator | None = None  # after the agreement on its key
        self._has_head = False  # of a message that is not complete
        self._stream_parser = self._parse_stream()
        self._unfilled = next(self._stream_parser)  # rest of the buffer that the parser waits for
        self._read_ahead = memoryview(bytearray(READ_AHEAD_BYTES))
        self._socket: socket.socket | None = None  # for direct reads; None with TLS or shaping
        self._wakeup_bytes = 1  # number of received bytes at which the kernel wakes this node
        self._source = ""
        self._claimed_source = ""  # name in the certificate of a rejected proof
        self._unacknowledged_bytes = 0
        self._acknowledgement_timer: asyncio.TimerHandle | None = None
        self._shaping_queue: deque[Message] = deque()
        self._shaping_task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        unidentified_streams = sum(not receiver.is_identified for receiver in self._open_receivers)
        self._open_receivers.add(self)
        if self._deliver_shaped is None and transport.get_extra_info("sslcontext") is None:
            connected = transport.get_extra_info("socket")
            self._socket = connected and connected.dup()
        self._handshake_timer = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._refuse_slow_sender)
        if unidentified_streams >= self._max_unidentified_streams:
            self._refuse(f"more than {self._max_unidentified_streams} streams wait for a proof of identity")

    @property
    def is_identified(self) -> bool:
        """Whether the sender has proved its identity."""
        return bool(self._source)

    def _refuse_slow_sender(self) -> None:
        self._refuse(f"no proof of identity within {HANDSHAKE_TIMEOUT_S:g} s")

    def refuse_if_unidentified(self) -> None:
        """Refuse the stream at the end of the node, if its sender has not proved its identity."""
        if not self.is_identified and not self._transport.is_closing():
            self._refuse("no proof of identity before the end of the node")

    def _refuse(self, reason: str) -> None:
        """Record why the stream is refused, and close the connection at once."""
        self._record_rejection(reason, self._source or self._claimed_source)
        self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - it is always -1
        return self._unfilled if len(self._unfilled) >= READ_AHEAD_BYTES else self._read_ahead

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes just received, and bytes that have arrived in the meantime.

        Another read from the socket costs less than another turn of the event loop.
        """
        requested = len(self.get_buffer(-1))
        self._consume_bytes(nbytes)
        for _ in range(MAX_READS_PER_TURN if self._socket is not None else 0):
            if nbytes < requested or self._transport.is_closing():
                break
            buffer = self.get_buffer(-1)
            requested, nbytes = len(buffer), self._read_socket(buffer)
            if nbytes:
                self._consume_bytes(nbytes)
        self._set_receive_low_watermark()

    def _read_socket(self, buffer: memoryview) -> int:
        """Read available bytes into `buffer` and return their number.

        The event loop handles the end of the stream.
        """
        assert self._socket is not None  # noqa: S101 - the caller has checked it
        try:
            return self._socket.recv_into(buffer)
        except OSError:  # no bytes are available, or the stream has ended
            return 0

    def _set_receive_low_watermark(self) -> None:
        """Make the kernel wake this process when the rest of a payload has arrived.

        Otherwise the kernel would wake it for each packet.
        """
        wakeup_bytes = len(self._unfilled) if len(self._unfilled) >= READ_AHEAD_BYTES else 1
        if self._socket is not None and wakeup_bytes != self._wakeup_bytes:
            self._wakeup_bytes = wakeup_bytes
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wakeup_bytes)

    def _consume_bytes(self, size_bytes: int) -> None:
        """Pass `size_bytes` received bytes to the stream parser.

        Small parts are copied from the read buffer.
        """
        if len(self._unfilled) >= READ_AHEAD_BYTES:
            self._mark_parser_buffer_filled(size_bytes)
            return
        received = self._read_ahead[:size_bytes]
        while received and not self._transport.is_closing():
            size = min(len(received), len(self._unfilled))
            self._unfilled[:size] = received[:size]
            received = received[size:]
            self._mark_parser_buffer_filled(size)

    def eof_received(self) -> None:
        """Record a message that the end of the stream has cut off. The event loop then closes the connection."""
        self._record_incomplete_message()

    def _record_incomplete_message(self) -> None:
        """Record that the connection ended within a message, if its messages have authentication tags."""
        if self._authenticator is None or self._stream is None or self._stream.has_ended:
            return
        if self._has_head or len(self._unfilled) < HEAD_BYTES:
            self._authenticator = None
            self._record_rejection(
                "the stream ended within a message: it was cut off, or its sender has broken it off", self._source
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection. TLS detects bytes that were altered."""
        self._handshake_timer.cancel()
        if isinstance(exc, ssl.SSLError):
            self._record_rejection(f"TLS rejects the bytes of the stream: {exc.reason or exc}", self._source)
        elif exc is not None:
            self._record_incomplete_message()
        if self._socket is not None:
            self._socket.close()
        if self._acknowledgement_timer is not None:
            self._acknowledgement_timer.cancel()
        if self._shaping_task is None:
            self._mark_connection_ended()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def _mark_parser_buffer_filled(self, received_bytes: int) -> None:
        """Mark `received_bytes` bytes of the parser's current buffer as filled.

        Resume the parser when the buffer is full.
        """
        self._unfilled = self._unfilled[received_bytes:]
        if self._unfilled:
            return
        try:
            self._unfilled = next(self._stream_parser)
        except StopIteration:  # bytes after the end of the stream are ignored
            self._unfilled = memoryview(bytearray(READ_AHEAD_BYTES))
        except AuthenticationError as error:
            self._handshake_timer.cancel()
            self._record_rejection(str(error), self._claimed_source)
            self._reply_to_identity_proof(str(error))
            self._transport.close()
        except UnknownStreamError:
            self._transport.close()
        except (MessageAuthenticationError, ProtocolError) as error:
            self._refuse(str(error))

    def _parse_stream(self) -> Iterator[memoryview]:
        """Parse the stream from its first byte to its last.

        Yield each buffer that received bytes must fill next.

        Raises:
            AuthenticationError: the sender's proof of identity is not valid.
            MessageAuthenticationError: a message has a wrong authentication tag.
            ProtocolError: the bytes are not a message.
        """
        yield from self._parse_opening()
        opening = bytearray(OPENING_BYTES)
        yield memoryview(opening)
        stream = self._accept_connection(StreamOpening.decode(bytes(opening)))
        while not stream.has_ended:
            yield from self._parse_message(stream)
        completion = bytearray(len(COMPLETION))
        yield memoryview(completion)
        stream.is_complete = completion == COMPLETION

    def _accept_connection(self, opening: StreamOpening) -> ReceivedStream:
        """Reply to the opening of a connection with the number of the last message that has arrived.

        Raises:
            ProtocolError: the connection belongs to a stream that this node does not know.
        """
        stream = self._streams.accept_connection(self._source, opening, self)
        if stream is None:
            self._transport.write(COUNT_FORMAT.pack(UNKNOWN_STREAM_COUNT))
            raise UnknownStreamError(f"{self._source} continues a stream that this node does not know")
        self._stream = stream
        self._transport.write(COUNT_FORMAT.pack(stream.received_count))
        return stream

    def _parse_message(self, stream: ReceivedStream) -> Iterator[memoryview]:
        """Parse the next message of the stream, and deliver it.

        Raises:
            MessageAuthenticationError: the message has a wrong authentication tag. The connection then ends, too.
            ProtocolError: the bytes are not the next message. The connection then ends, and the sender opens another
                one, in which this message comes first.
        """
        head = bytearray(HEAD_BYTES)
        self._has_head = False
        yield memoryview(head)
        self._has_head = True
        yield from self._verify_tag(head)
        (number,) = COUNT_FORMAT.unpack_from(head)
        stream.check_number(number)
        fields = decode_message_prefix(memoryview(head)[COUNT_FORMAT.size :])
        size = self._check_payload_size(count_payload_bytes(fields))
        payload = self._mailbox.claim_buffer(self._source, message_tag(fields), size) or _allocate_payload(size)
        if payload:
            yield payload
            yield from self._verify_tag(payload)
        yield from _padding_buffers(self._count_padding_bytes(size))
        message = build_message(fields, payload)
        stream.received_count = number
        stream.has_ended = message.tag.kind == MessageKind.END_OF_STREAM
        if not stream.has_ended:
            self._deliver(message)
        self._count_unacknowledged_bytes(size + len(head), is_last=stream.has_ended)

    def _count_unacknowledged_bytes(self, size_bytes: int, *, is_last: bool) -> None:
        """Acknowledge all messages, now or after a while."""
        self._unacknowledged_bytes += size_bytes
        if is_last or self._unacknowledged_bytes >= ACKNOWLEDGED_BYTES:
            self._acknowledge()
        elif self._acknowledgement_timer is None:
            loop = asyncio.get_running_loop()
            self._acknowledgement_timer = loop.call_later(ACKNOWLEDGEMENT_DELAY_S, self._acknowledge_after_delay)

    def _acknowledge_after_delay(self) -> None:
        self._acknowledgement_timer = None
        if self._unacknowledged_bytes:
            self._acknowledge()

    def _acknowledge(self) -> None:
        assert self._stream is not None  # noqa: S101 - messages have arrived
        self._unacknowledged_bytes = 0
        if not self._transport.is_closing():
            self._transport.write(COUNT_FORMAT.pack(self._stream.received_count))

    def _parse_opening(self) -> Iterator[memoryview]:
        """Parse and accept the opening of the connection: length and bytes of the sender's proof of identity.

        Yield each buffer that received bytes must fill next.

        Raises:
            AuthenticationError: the proof is not valid, or has no key if messages must have authentication tags.
        """
        length = bytearray(LENGTH_FORMAT.size)
        yield memoryview(length)
        proof = _allocate_payload(_check_proof_length(*LENGTH_FORMAT.unpack(length)))
        if proof:
            yield proof
        self._claimed_source = claimed_sender_name(bytes(proof))
        source, key_reply = self._identity.verify_identity_proof(bytes(proof) or None), b""
        if self._authenticates_messages:
            key_reply, self._authenticator = reply_to_key_agreement(self._identity, source, bytes(proof))
        self._source = source
        self._handshake_timer.cancel()
        self._reply_to_identity_proof("")
        if self._authenticator is not None:
            self._transport.write(LENGTH_FORMAT.pack(len(key_reply)) + key_reply)

    def _verify_tag(self, received: memoryview | bytearray) -> Iterator[memoryview]:
        """Yield the buffer for the authentication tag of received bytes, and verify it; without a key, yield nothing.

        Raises:
            MessageAuthenticationError: the tag is wrong.
        """
        if self._authenticator is None:
            return
        tag = bytearray(TAG_BYTES)
        yield memoryview(tag)
        self._authenticator.verify_tag(received, tag)

    def _check_payload_size(self, size_bytes: int) -> int:
        """Return the size that a message announces for its payload, before memory is allocated for it.

        Raises:
            ProtocolError: the size exceeds the limit.
        """
        if size_bytes > self._payload_limit_bytes:
            raise ProtocolError(
                f"a message announces a payload of {size_bytes} bytes; at most {self._payload_limit_bytes} are allowed"
            )
        return size_bytes

    def _reply_to_identity_proof(self, rejection_reason: str) -> None:
        """Reply to a sender's proof of identity.

        The reply is empty if the proof is accepted. Otherwise it is the reason of the rejection.
        """
        text = rejection_reason.encode()
        self._transport.write(LENGTH_FORMAT.pack(len(text)) + text)

    def _deliver(self, message: Message) -> None:
        """Put a message into the mailbox, after the emulated delay if there is one.

        There is a delay only if this process emulates the network. While shaping delays a message, this node stops
        reading: later messages wait in the kernel, then at the sender.
        """
        if self._deliver_shaped is None:
            self._mailbox.deliver(self._source, message)
            return
        self._shaping_queue.append(message)
        if self._shaping_task is None:
            self._transport.pause_reading()
            assert self._stream is not None  # noqa: S101 - a message has arrived
            deliveries = self._deliver_messages(self._deliver_shaped, self._stream.delivery_task)
            self._shaping_task = asyncio.get_running_loop().create_task(deliveries)
            self._stream.delivery_task = self._shaping_task

    async def _deliver_messages(
        self, deliver_message: DeliverMessage, earlier_deliveries: asyncio.Task[None] | None
    ) -> None:
        """Deliver the queued messages one after the other, then continue to read.

        Messages of an earlier connection, which `earlier_deliveries` delivers, come first.
        """
        if earlier_deliveries is not None:
            await asyncio.wait([earlier_deliveries])
        while self._shaping_queue:
            await deliver_message(self._source, self._shaping_queue.popleft())
        self._shaping_task = None
        if self._transport.is_closing():
            self._mark_connection_ended()
        else:
            self._transport.resume_reading()

    def _mark_connection_ended(self) -> None:
        """Let the stream wait for its next connection, if it is not complete."""
        self._open_receivers.discard(self)
        if self._stream is not None:
            self._streams.end_connection(self._stream, self)


def _check_proof_length(proof_bytes: int) -> int:
    """Check the length that an unknown sender announces for its proof of identity.

    Return the length, or raise an error if the proof is too long.

    Raises:
        AuthenticationError: the length exceeds the limit.
    """
    if proof_bytes > MAX_PROOF_BYTES:
        raise AuthenticationError(
            f"the stream's proof of identity has {proof_bytes} bytes; at most {MAX_PROOF_BYTES} are allowed"
        )
    return proof_bytes


def _padding_buffers(padding_bytes: int) -> Iterator[memoryview]:
    """Yield the buffers that the padding after a payload must fill; their content is discarded.

    Raises:
        ProtocolError: the sender pads messages to another size.
    """
    if not padding_bytes:
        return
    header = bytearray(PADDING_HEADER_BYTES)
    yield memoryview(header)
    if header != encode_padding_header(padding_bytes):
        raise ProtocolError(f"a message does not have the expected padding of {padding_bytes} bytes")
    while padding_bytes:
        buffer = DISCARDED_BYTES[:padding_bytes]
        yield buffer
        padding_bytes -= len(buffer)


def _allocate_payload(size_bytes: int) -> memoryview:
    """Return memory for a payload of `size_bytes` bytes, at an aligned address.

    NumPy does not clear the memory.

    Raises:
        ProtocolError: this process can't have so much memory.
    """
    try:
        memory = np.empty(size_bytes + PAYLOAD_ALIGNMENT_BYTES, np.uint8)
    except MemoryError as error:
        raise ProtocolError(f"a message announces a payload of {size_bytes} bytes, more than the memory") from error
    start = -memory.__array_interface__["data"][0] % PAYLOAD_ALIGNMENT_BYTES
    return memory[start : start + size_bytes].data
