"""Is a shaped link what it should be? Echoes, floods and one message, sent between helpers before training begins.

Floods are UDP: a rate shows at once, however long the path's delay is, while TCP would need many round trips to find
it. They are told as rates of Ethernet frames, as tc counts.
"""

import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from services.runtime.scheduling import reduce_wakeup_latency

ECHO_PORT, FLOOD_PORT, MESSAGE_PORT = 7991, 7992, 7993
DATAGRAM_BYTES, FRAME_BYTES = 1472, 1514
_UDP_SEGMENT, _UDP_GRO, _SOL_UDP, _SO_SNDBUFFORCE = 103, 104, 17, 32
MOST_SEGMENTS = 11  # as in `compose.shaping`: what TCP hands over at most, on links below 1.2 Gbit/s
HELD_S = 0.02  # of a flood that a socket holds
ECHO_TIMEOUT_S = 1.0
RECEIVE_BUFFER_BYTES = 4 << 20
PIECE_BYTES = 64 << 10
MESSAGE_TIMEOUT_S = 20.0
_ECHO, _SIZE = struct.Struct("=Id"), struct.Struct(">Q")


@dataclass
class Ear:
    """What listens beside a node while its links are probed; it answers echoes and counts what floods it."""

    address: str
    _frames: list[tuple[float, str, int]] = field(default_factory=list)
    _sockets: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def open(self) -> None:
        """Listen, in threads that end when it closes."""
        echo, flood = (_udp(self.address, port) for port in (ECHO_PORT, FLOOD_PORT))
        flood.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        flood.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        message = socket.create_server((self.address, MESSAGE_PORT))
        self._sockets += [echo, flood, message]
        for work, link in ((_answer, echo), (self._count, flood), (_swallow, message)):
            self._threads.append(threading.Thread(target=work, args=(link,), daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Stop listening; the ports are free again. A socket that is closed under its reader would live on in it."""
        for link in self._sockets:
            with suppress(OSError):  # nobody is connected, as always; readers wake up nevertheless
                link.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for link in self._sockets:
            link.close()

    def rates(self, since: float, until: float) -> dict[str, float]:
        """Bit/s that came from each address between two moments of the monotonic clock."""
        inside = [frame for frame in self._frames if since <= frame[0] <= until]
        by_source: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        for moment, source, size in inside:
            by_source[source].append((moment, size))
        return {source: _rate(frames) for source, frames in by_source.items()}

    def total(self, since: float, until: float) -> float:
        """Bit/s that came from all together."""
        return _rate([(moment, size) for moment, _, size in self._frames if since <= moment <= until])

    def _count(self, link: socket.socket) -> None:
        while (got := _received(link)) is not None:
            size, source = got
            datagrams = -(-size // DATAGRAM_BYTES)
            self._frames.append((time.monotonic(), source, datagrams * FRAME_BYTES))


def echoes(peers: Mapping[str, str], count: int, gap_s: float) -> dict[str, list[float]]:
    """Round trips to every peer, seconds; a lost echo is missing.

    Args:
        peers: name -> address.
        count: echoes to each.
        gap_s: between two echoes to the same peer; those to others are spread over it.
    """
    names = {address: name for name, address in peers.items()}
    found: dict[str, list[float]] = {name: [] for name in peers}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(0.001)
        started, waiting = time.monotonic(), deque(address for _ in range(count) for address in names)
        deadline, each_s, sent = started + count * gap_s + ECHO_TIMEOUT_S, gap_s / len(peers), 0
        while time.monotonic() < deadline and sum(map(len, found.values())) < count * len(peers):
            if waiting and time.monotonic() >= started + sent * each_s:
                link.sendto(_ECHO.pack(sent, time.monotonic()), (waiting.popleft(), ECHO_PORT))
                sent += 1
            try:
                data, (address, _) = link.recvfrom(64)
            except TimeoutError:
                continue
            found[names[address]].append(time.monotonic() - _ECHO.unpack(data)[1])
    return found


def flood(targets: Mapping[str, float], since: float, until: float) -> None:
    """Send datagrams to some addresses between two moments, as fast as the link takes them.

    Args:
        targets: address -> bit/s of frames not to exceed, so that what no link limits doesn't take the whole host.
        since: moment of the monotonic clock at which to begin.
        until: when to end.

    Raises:
        ConnectionError: nothing could be sent to one of them.
    """
    with ThreadPoolExecutor(max(1, len(targets))) as pool:
        for flow in [pool.submit(_flood, *item, since, until) for item in targets.items()]:
            flow.result()


def message_s(address: str, size: int) -> float:
    """Seconds from the first byte of a message to its acknowledgement, on a stream that has sent one before.

    Raises:
        ConnectionError: it was not acknowledged.
    """
    with socket.create_connection((address, MESSAGE_PORT), timeout=MESSAGE_TIMEOUT_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            started = time.monotonic()
            stream.sendall(_SIZE.pack(size))
            for sent in range(0, size, PIECE_BYTES):
                stream.sendall(bytes(min(PIECE_BYTES, size - sent)))
            if not stream.recv(1):
                raise ConnectionError(f"{address} has not acknowledged a message")
            taken = time.monotonic() - started
        return taken


def _flood(address: str, most_bps: float, since: float, until: float) -> None:
    """In bunches that the kernel cuts; a socket's buffer is what holds it back."""
    reduce_wakeup_latency()
    segments = max(1, min(MOST_SEGMENTS, int(most_bps / 8 * 0.002 / FRAME_BYTES)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(_SOL_UDP, _UDP_SEGMENT, DATAGRAM_BYTES)
        _hold(link, max(4 * segments * FRAME_BYTES, int(most_bps / 8 * HELD_S)))
        link.settimeout(0.05)
        bunch, gap_s = bytes(segments * DATAGRAM_BYTES), segments * FRAME_BYTES * 8 / most_bps
        next_at, sent, why = since, False, "no time"
        while (now := time.monotonic()) < until:
            if now < next_at:
                time.sleep(min(next_at, until) - now)
                continue
            try:
                link.sendto(bunch, (address, FLOOD_PORT))
                sent = True
            except OSError as error:  # full, or the peer does not listen yet
                why = str(error)
                continue
            next_at = max(next_at + gap_s, time.monotonic() - HELD_S)
    if not sent:
        raise ConnectionError(f"nothing could be sent to {address}: {why}")


def _hold(link: socket.socket, size: int) -> None:
    """What waits in the kernel keeps a link busy while a busy host keeps us from sending more."""
    try:
        link.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 2 * size)
    except PermissionError:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * size)


def _answer(link: socket.socket) -> None:
    try:
        while (got := link.recvfrom(64))[0]:
            link.sendto(*got)
    except OSError:  # shut down
        return


def _swallow(server: socket.socket) -> None:
    """Read messages, and answer each with one byte."""
    try:
        while True:
            stream, _ = server.accept()
            threading.Thread(target=_swallow_stream, args=(stream,), daemon=True).start()
    except OSError:  # shut down
        return


def _swallow_stream(stream: socket.socket) -> None:
    with stream, suppress(OSError):  # a sender that is gone has nobody to be told
        while len(header := stream.recv(_SIZE.size, socket.MSG_WAITALL)) == _SIZE.size:
            _swallow_message(stream, *_SIZE.unpack(header))
            stream.sendall(b"+")


def _swallow_message(stream: socket.socket, left: int) -> None:
    """Read so many bytes.

    Raises:
        ConnectionError: the stream ends before.
    """
    while left > 0:
        if not (piece := stream.recv(min(left, PIECE_BYTES))):
            raise ConnectionError(f"a message has ended {left} bytes too early")
        left -= len(piece)


def _received(link: socket.socket) -> tuple[int, str] | None:
    """Bytes and sender of what came; None once the socket is shut down."""
    try:
        size, sender = link.recvfrom_into(_BUFFERS.buffer)
    except OSError:
        return None
    return (size, sender[0]) if size else None


class _Buffers(threading.local):
    """A buffer per thread: datagrams are counted, not kept."""

    def __init__(self) -> None:
        self.buffer = bytearray(1 << 16)


_BUFFERS = _Buffers()


def _rate(frames: list[tuple[float, int]]) -> float:
    """Bit/s of what came after the first, over the time from the first to the last."""
    if len(frames) < 2 or frames[-1][0] == frames[0][0]:  # noqa: PLR2004
        return 0.0
    return sum(size for _, size in frames[1:]) * 8 / (frames[-1][0] - frames[0][0])


def _udp(address: str, port: int) -> socket.socket:
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    link.bind((address, port))
    return link
