"""Fuzz targets that read bytes of other nodes: messages, streams and proofs of identity."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage
from google.protobuf.message_factory import GetMessageClass

from services.runtime.identity import NodeIdentity
from services.runtime.transport import MessageKind, MessageTag
from services.transport.codec import decode_message, encode_message
from services.transport.mailbox import Mailbox
from services.transport.streams.received_streams import OPENING_BYTES, ReceivedStreams
from services.transport.tcp.receiver import StreamReceiver
from services.transport.tcp.sender import LENGTH_FORMAT
from services.wire import control_pb2, data_pb2

__all__ = ["DecodeError", "read_identity_proof", "read_message", "read_protobuf", "read_tcp_stream"]

SENDER, RECEIVER = "a", "b"
AUTHORITY_CERTIFICATE = Path(__file__).with_name("ca.pem")


class AcceptingIdentity:
    """Identity that accepts every proof, so that a fuzzer reaches the messages behind it."""

    def verify_identity_proof(self, serialised_proof: bytes | None) -> str:
        """Return the name of the sender."""
        return SENDER


class DiscardingConnection(asyncio.Transport):
    """Connection that discards what the receiver replies."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = False

    def write(self, data: Any) -> None:
        """Discard the reply."""

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    abort = close


def read_message(content: bytes) -> None:
    """Decode a message of the data plane over gRPC; a valid one stays the same when it is encoded again."""
    message = decode_message(content)
    again = decode_message(encode_message(message))
    assert (message.tag, bytes(message.data)) == (again.tag, bytes(again.data))


def read_tcp_stream(content: bytes) -> None:
    """Receive a stream of the data plane over TCP.

    The first byte chooses whether the opening must prove an identity, and the second one how the kernel splits the
    stream.
    """
    options, stream = content[:2].ljust(2, b"\0"), content[2:]
    if options[0] % 2:
        stream = LENGTH_FORMAT.pack(0) + bytes(OPENING_BYTES) + stream
    identity: Any = AcceptingIdentity() if options[0] % 2 else _identity()
    _event_loop().run_until_complete(_receive_stream(identity, stream, part_bytes=1 + 64 * options[1]))


async def _receive_stream(identity: Any, stream: bytes, part_bytes: int) -> None:
    mailbox, connection = Mailbox(1.0), DiscardingConnection()
    pending = mailbox.start_receive(
        SENDER, (MessageTag(0, MessageKind.PARTIAL_SUM, 0, 0),), lambda _: None, memoryview(bytearray(8))
    )
    streams = ReceivedStreams(mailbox, lambda _source: asyncio.sleep(0), lambda: 1.0)
    receiver = StreamReceiver(identity, mailbox, None, set(), streams, lambda payload_bytes: payload_bytes % 3)
    receiver.connection_made(connection)
    rest = memoryview(stream)
    while rest and not connection.is_closing():
        buffer = receiver.get_buffer(-1)
        size = min(len(buffer), len(rest), part_bytes)
        buffer[:size] = rest[:size]
        receiver.buffer_updated(size)
        rest = rest[size:]
    receiver.connection_lost(None)
    if pending is not None:
        pending.cancel()
    if streams.unfinished:  # the end of the connection was not that of the stream
        await asyncio.wait(streams.unfinished.values())


def read_identity_proof(content: bytes) -> None:
    """Verify the proof of identity with which another node opens a stream."""
    _identity().verify_identity_proof(content)


def read_protobuf(content: bytes) -> None:
    """Decode a Protocol Buffers message; the first byte chooses the message of the protocol."""
    classes = _message_classes()
    message = classes[content[0] % len(classes) if content else 0].FromString(content[1:])
    assert type(message).FromString(message.SerializeToString()).SerializeToString() == message.SerializeToString()


@cache
def _message_classes() -> list[type[ProtobufMessage]]:
    descriptors = (control_pb2.DESCRIPTOR, data_pb2.DESCRIPTOR)
    return [
        GetMessageClass(file.message_types_by_name[name]) for file in descriptors for name in file.message_types_by_name
    ]


@cache
def _identity() -> NodeIdentity:
    """Return the identity of a node that only verifies proofs; seeds are proofs of a node with the same authority."""
    return NodeIdentity(RECEIVER, AUTHORITY_CERTIFICATE.read_bytes(), certificate=b"", private_key=b"")


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()
