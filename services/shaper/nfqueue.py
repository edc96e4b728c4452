"""How does a process get a kernel's packets and give its verdicts on them? Messages of nfnetlink_queue, no more.

linux/netfilter/nfnetlink_queue.h. Packets stay in the kernel, which tells only their numbers (copy mode meta).
"""

import errno
import socket
import struct

NETLINK_NETFILTER = 12
SUBSYSTEM = 3 << 8
PACKET, VERDICT, CONFIG, VERDICT_BATCH = range(4)
DROP, ACCEPT = 0, 1
LONGEST_QUEUE = 200_000  # packets that wait; what comes on top is lost, never let through early
RECEIVE_BUFFER_BYTES = 32 << 20
_SO_RCVBUFFORCE, _SOL_NETLINK, _NETLINK_NO_ENOBUFS = 33, 270, 5
_ERROR = 2
_BIND, _COPY_META, _AS_SEGMENTED = 1, 1, 1 << 2
_HEADER = struct.Struct("=IHHII")
_QUEUE_AT, _NUMBER_AT = 18, 24  # bytes into a message about a packet


def bind(queue: int) -> bytes:
    """The messages that make a process the owner of a queue; packets come as large as TCP has made them."""
    return b"".join(
        (
            _message(CONFIG, queue, _attribute(1, struct.pack(">BBH", _BIND, 0, 0)), acknowledged=True),
            _message(CONFIG, queue, _attribute(2, struct.pack(">IB", 0, _COPY_META))),
            _message(CONFIG, queue, _attribute(3, struct.pack(">I", LONGEST_QUEUE))),
            _message(CONFIG, queue, _flags(_AS_SEGMENTED)),
        )
    )


def verdict(queue: int, number: int, decision: int) -> bytes:
    """Decide on one packet."""
    return _message(VERDICT, queue, _attribute(2, struct.pack(">II", decision, number)))


def verdicts_up_to(queue: int, number: int) -> bytes:
    """Let through all packets of a queue up to this one that wait still."""
    return _message(VERDICT_BATCH, queue, _attribute(2, struct.pack(">II", ACCEPT, number)))


def packet(message: bytes) -> tuple[int, int] | None:
    """Queue and number of the packet that a message tells of; None when it tells of something else.

    Raises:
        OSError: the message is an error.
    """
    kind = int.from_bytes(message[4:6], "little")
    if kind == SUBSYSTEM | PACKET:
        return (
            int.from_bytes(message[_QUEUE_AT : _QUEUE_AT + 2], "big"),
            int.from_bytes(message[_NUMBER_AT : _NUMBER_AT + 4], "big"),
        )
    if kind == _ERROR and (code := -int.from_bytes(message[16:20], "little", signed=True)) not in (0, errno.ENOENT):
        raise OSError(code, "nfnetlink_queue")  # ENOENT: a verdict on a packet that is gone with its device
    return None


def connect() -> socket.socket:
    """A socket to the kernel; what it can't hold is lost silently, as on a link."""
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    link.bind((0, 0))
    link.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
    try:
        link.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    except PermissionError:  # asked for in the first user namespace alone
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return link


def _flags(flags: int) -> bytes:
    return _attribute(4, struct.pack(">I", flags)) + _attribute(5, struct.pack(">I", flags))


def _message(kind: int, queue: int, attributes: bytes, *, acknowledged: bool = False) -> bytes:
    body = struct.pack(">BBH", 0, 0, queue) + attributes
    return _HEADER.pack(16 + len(body), SUBSYSTEM | kind, 1 | (4 if acknowledged else 0), 0, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    """Length, kind, value, filled up to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
