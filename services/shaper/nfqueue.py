"""Messages of the kernel's packet queues (nfnetlink_queue).

This module parses packets and encodes verdicts on packets. The format is that of linux/netfilter/nfnetlink_queue.h.
Packets stay in the kernel, which sends only their numbers (copy mode meta). A verdict accepts or drops packets.
"""

import errno
import socket
import struct

NETLINK_NETFILTER = 12
NFQUEUE_SUBSYSTEM = 3 << 8
PACKET, VERDICT, CONFIG, VERDICT_BATCH = range(4)
DROP, ACCEPT = 0, 1
MAX_QUEUE_PACKETS = 200_000  # waiting packets; further packets are dropped, never accepted early
RECEIVE_BUFFER_BYTES = 32 << 20
_SO_RCVBUFFORCE, _SOL_NETLINK, _NETLINK_NO_ENOBUFS = 33, 270, 5
_ERROR = 2
_BIND, _COPY_META, _AS_SEGMENTED = 1, 1, 1 << 2
_HEADER = struct.Struct("=IHHII")
_QUEUE_NUMBER_OFFSET, _PACKET_NUMBER_OFFSET = 18, 24  # in bytes, of the fields in a message about a packet


def encode_queue_binding(queue_id: int) -> bytes:
    """Return the messages that bind a kernel packet queue to this process.

    The messages also request large TCP packets unsplit.
    """
    return b"".join(
        (
            _encode_message(CONFIG, queue_id, _encode_attribute(1, struct.pack(">BBH", _BIND, 0, 0)), acknowledge=True),
            _encode_message(CONFIG, queue_id, _encode_attribute(2, struct.pack(">IB", 0, _COPY_META))),
            _encode_message(CONFIG, queue_id, _encode_attribute(3, struct.pack(">I", MAX_QUEUE_PACKETS))),
            _encode_message(CONFIG, queue_id, _encode_queue_flags(_AS_SEGMENTED)),
        )
    )


def encode_packet_verdict(queue_number: int, packet_number: int, decision: int) -> bytes:
    """Return the message with the verdict on one packet: `DROP` or `ACCEPT`."""
    return _encode_message(VERDICT, queue_number, _encode_attribute(2, struct.pack(">II", decision, packet_number)))


def encode_accept_packets_up_to(queue_number: int, packet_number: int) -> bytes:
    """Return the message that makes the kernel accept waiting packets of a queue.

    The kernel accepts the packets up to and including `packet_number`.
    """
    return _encode_message(VERDICT_BATCH, queue_number, _encode_attribute(2, struct.pack(">II", ACCEPT, packet_number)))


def parse_packet_message(message: bytes) -> tuple[int, int] | None:
    """Return the queue number and the packet number in a message about a packet.

    Return None for other messages.

    Raises:
        OSError: the message reports an error.
    """
    message_type = int.from_bytes(message[4:6], "little")
    if message_type == NFQUEUE_SUBSYSTEM | PACKET:
        return (
            int.from_bytes(message[_QUEUE_NUMBER_OFFSET : _QUEUE_NUMBER_OFFSET + 2], "big"),
            int.from_bytes(message[_PACKET_NUMBER_OFFSET : _PACKET_NUMBER_OFFSET + 4], "big"),
        )
    if message_type == _ERROR:
        error_code = -int.from_bytes(message[16:20], "little", signed=True)
        if error_code not in (0, errno.ENOENT):  # ENOENT: a verdict on a packet that was removed with its device
            raise OSError(error_code, "nfnetlink_queue")
    return None


def open_netlink_socket() -> socket.socket:
    """Return a netlink socket for messages to and from the kernel.

    If the buffer of the socket is full, messages are lost without an error.
    """
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    netlink.bind((0, 0))
    netlink.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
    try:
        netlink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    except PermissionError:  # allowed in the initial user namespace only
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return netlink


def _encode_queue_flags(flags: int) -> bytes:
    return _encode_attribute(4, struct.pack(">I", flags)) + _encode_attribute(5, struct.pack(">I", flags))


def _encode_message(message_type: int, queue_number: int, attributes: bytes, *, acknowledge: bool = False) -> bytes:
    body = struct.pack(">BBH", 0, 0, queue_number) + attributes
    return _HEADER.pack(16 + len(body), NFQUEUE_SUBSYSTEM | message_type, 1 | (4 if acknowledge else 0), 0, 0) + body


def _encode_attribute(attribute_type: int, value: bytes) -> bytes:
    """Return an encoded netlink attribute: length, type and value, padded to a multiple of four bytes."""
    return struct.pack("=HH", 4 + len(value), attribute_type) + value + b"\0" * (-len(value) % 4)
