"""Tools to measure the rate at which bytes arrive, and to discard received bytes."""

import socket
from collections.abc import Iterable
from typing import TypeAlias

RECEIVE_BUFFER_BYTES = 256 << 10

Arrival: TypeAlias = tuple[float, int]  # monotonic seconds, bytes


def arrival_rate_bytes_per_s(arrival_times_and_bytes: Iterable[Arrival]) -> float:
    """Return the bytes received per second from the first arrival to the last.

    Return 0 for fewer than two arrivals. The bytes of the first arrival are not counted, since they arrived before the
    measured time.
    """
    ordered = sorted(arrival_times_and_bytes, key=lambda arrival: arrival[0])
    if len(ordered) < 2 or ordered[-1][0] == ordered[0][0]:  # noqa: PLR2004 - a time has two ends
        return 0.0
    return sum(size_bytes for _, size_bytes in ordered[1:]) / (ordered[-1][0] - ordered[0][0])


def discard_bytes(stream: socket.socket, byte_count: int) -> None:
    """Read `byte_count` bytes from a stream and discard them.

    Raises:
        ConnectionError: the stream ends too early.
    """
    buffer = bytearray(RECEIVE_BUFFER_BYTES)
    while byte_count > 0:
        if not (received_bytes := stream.recv_into(buffer, min(byte_count, RECEIVE_BUFFER_BYTES))):
            raise ConnectionError(f"the sender closed the stream {byte_count} bytes too early")
        byte_count -= received_bytes
