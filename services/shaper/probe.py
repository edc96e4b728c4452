"""Probes that measure shaped links before training.

The probes are round trips, UDP floods (probe flows at full rate) and one message between helper containers. Floods are
UDP: they show a rate at once, however long the delay of the path is. TCP would need many round trips to reach the rate.
Rates are those of Ethernet frames, as `tc` counts them.
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

from services.cluster.links.ethernet import FRAME_BYTES, MAX_FRAMES_PER_PACKET
from services.runtime.scheduling import reduce_wakeup_latency
from services.runtime.stream_measurement import Arrival, arrival_rate_bytes_per_s, discard_bytes

ECHO_PORT, FLOOD_PORT, MESSAGE_PORT = 7991, 7992, 7993
DATAGRAM_BYTES = 1472  # UDP payload of a full frame
_UDP_SEGMENT, _UDP_GRO, _SOL_UDP, _SO_SNDBUFFORCE = 103, 104, 17, 32
SEND_BUFFER_S = 0.02  # seconds of a flood that the send buffer of a socket holds
ECHO_TIMEOUT_S = 1.0
RECEIVE_BUFFER_BYTES = 4 << 20
CHUNK_BYTES = 64 << 10
MESSAGE_TIMEOUT_S = 20.0
_ECHO, _SIZE = struct.Struct("=Id"), struct.Struct(">Q")


@dataclass
class ProbeReceiver:
    """Receiver of link probes at one node.

    It echoes datagrams, counts floods (probe flows at full rate), and acknowledges messages.
    """

    address: str
    _received_frames: list[tuple[float, str, int]] = field(default_factory=list)  # time, source address, bytes
    _sockets: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Open the sockets for all probes, and start one thread per socket."""
        echo_socket, flood_socket = (_open_udp_socket(self.address, port) for port in (ECHO_PORT, FLOOD_PORT))
        flood_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        flood_socket.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        message_socket = socket.create_server((self.address, MESSAGE_PORT))
        self._sockets += [echo_socket, flood_socket, message_socket]
        readers = (_answer_echoes, self._count_frames, _accept_message_streams)
        for read, probe_socket in zip(readers, (echo_socket, flood_socket, message_socket), strict=True):
            self._threads.append(threading.Thread(target=read, args=(probe_socket,), daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Stop the threads, then close the sockets, so that the ports are free again.

        A socket that is closed while a thread reads it stays open in that thread.
        """
        for probe_socket in self._sockets:
            with suppress(OSError):  # UDP sockets are not connected, but the call still wakes up their readers
                probe_socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for probe_socket in self._sockets:
            probe_socket.close()

    def rates_by_source_bps(self, begin_s: float, end_s: float) -> dict[str, float]:
        """Return the rate (bit/s) received from each address between two times.

        Both times are times of the monotonic clock.
        """
        frames_in_time = [frame for frame in self._received_frames if begin_s <= frame[0] <= end_s]
        by_source: defaultdict[str, list[Arrival]] = defaultdict(list)
        for time_s, source, size_bytes in frames_in_time:
            by_source[source].append((time_s, size_bytes))
        return {source: 8 * arrival_rate_bytes_per_s(frames) for source, frames in by_source.items()}

    def total_rate_bps(self, begin_s: float, end_s: float) -> float:
        """Return the total rate (bit/s) received from all addresses between two times.

        Both times are times of the monotonic clock.
        """
        frames = [(time_s, size_bytes) for time_s, _, size_bytes in self._received_frames if begin_s <= time_s <= end_s]
        return 8 * arrival_rate_bytes_per_s(frames)

    def _count_frames(self, flood_socket: socket.socket) -> None:
        while (received := _receive_datagrams(flood_socket)) is not None:
            size_bytes, source = received
            datagrams = -(-size_bytes // DATAGRAM_BYTES)
            self._received_frames.append((time.monotonic(), source, datagrams * FRAME_BYTES))


def measure_round_trips(addresses: Mapping[str, str], echo_count: int, gap_s: float) -> dict[str, list[float]]:
    """Measure round-trip times to each peer with UDP echoes.

    Return the times in seconds, by peer name, without lost echoes.

    Args:
        addresses: name of a peer -> its address.
        echo_count: number of echoes to each peer.
        gap_s: seconds between two echoes to the same peer; echoes to other peers are sent in between.
    """
    names = {address: name for name, address in addresses.items()}
    round_trips_s: dict[str, list[float]] = {name: [] for name in addresses}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_socket:
        udp_socket.settimeout(0.001)
        started_s, remaining = time.monotonic(), deque(address for _ in range(echo_count) for address in names)
        deadline_s, echo_gap_s, sent = started_s + echo_count * gap_s + ECHO_TIMEOUT_S, gap_s / len(addresses), 0
        while time.monotonic() < deadline_s and sum(map(len, round_trips_s.values())) < echo_count * len(addresses):
            if remaining and time.monotonic() >= started_s + sent * echo_gap_s:
                udp_socket.sendto(_ECHO.pack(sent, time.monotonic()), (remaining.popleft(), ECHO_PORT))
                sent += 1
            try:
                data, (address, _) = udp_socket.recvfrom(64)
            except TimeoutError:
                continue
            round_trips_s[names[address]].append(time.monotonic() - _ECHO.unpack(data)[1])
    return round_trips_s


def send_flood(max_bps_by_address: Mapping[str, float], begin_s: float, end_s: float) -> None:
    """Send datagrams to each address as fast as the link takes them.

    All floods (probe flows at full rate) begin and end at the given times of the monotonic clock.

    Args:
        max_bps_by_address: address -> largest rate of frames in bit/s, so that no flood uses the whole host.
        begin_s: time at which the floods begin.
        end_s: time at which the floods end.

    Raises:
        ConnectionError: nothing could be sent to one of the addresses.
    """
    with ThreadPoolExecutor(max(1, len(max_bps_by_address))) as pool:
        for flood in [pool.submit(_send_flood_to, *target, begin_s, end_s) for target in max_bps_by_address.items()]:
            flood.result()


def measure_message_seconds(address: str, size_bytes: int) -> float:
    """Return the seconds that one message on a TCP stream takes.

    The time runs from the first byte to the acknowledgement. The stream has sent a message of the same size before.

    Raises:
        ConnectionError: the message was not acknowledged.
    """
    with socket.create_connection((address, MESSAGE_PORT), timeout=MESSAGE_TIMEOUT_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            started_s = time.monotonic()
            stream.sendall(_SIZE.pack(size_bytes))
            for sent_bytes in range(0, size_bytes, CHUNK_BYTES):
                stream.sendall(bytes(min(CHUNK_BYTES, size_bytes - sent_bytes)))
            if not stream.recv(1):
                raise ConnectionError(f"{address} did not acknowledge a message of {size_bytes} bytes")
            message_s = time.monotonic() - started_s
        return message_s


def _send_flood_to(address: str, max_bps: float, begin_s: float, end_s: float) -> None:
    """Send datagrams to one address, in batches.

    The kernel splits the batches into datagrams. A full send buffer limits the rate.
    """
    reduce_wakeup_latency()
    segments = max(1, min(MAX_FRAMES_PER_PACKET, int(max_bps / 8 * 0.002 / FRAME_BYTES)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_socket:
        udp_socket.setsockopt(_SOL_UDP, _UDP_SEGMENT, DATAGRAM_BYTES)
        _set_send_buffer(udp_socket, max(4 * segments * FRAME_BYTES, int(max_bps / 8 * SEND_BUFFER_S)))
        udp_socket.settimeout(0.05)
        batch, gap_s = bytes(segments * DATAGRAM_BYTES), segments * FRAME_BYTES * 8 / max_bps
        next_send_s, has_sent, last_error = begin_s, False, "no time"
        while (now_s := time.monotonic()) < end_s:
            if now_s < next_send_s:
                time.sleep(min(next_send_s, end_s) - now_s)
                continue
            try:
                udp_socket.sendto(batch, (address, FLOOD_PORT))
                has_sent = True
            except OSError as error:  # the send buffer is full, or the peer's receiver has not started yet
                last_error = str(error)
                continue
            next_send_s = max(next_send_s + gap_s, time.monotonic() - SEND_BUFFER_S)
    if not has_sent:
        raise ConnectionError(f"nothing could be sent to {address}: {last_error}")


def _set_send_buffer(udp_socket: socket.socket, size_bytes: int) -> None:
    """Set the size of a socket's send buffer.

    Packets in the buffer keep the link busy while this process waits.
    """
    try:
        udp_socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 2 * size_bytes)
    except PermissionError:
        udp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * size_bytes)


def _answer_echoes(echo_socket: socket.socket) -> None:
    try:
        while (received := echo_socket.recvfrom(64))[0]:
            echo_socket.sendto(*received)
    except OSError:  # shut down
        return


def _accept_message_streams(server_socket: socket.socket) -> None:
    """Accept TCP streams, and acknowledge every message on a stream with one byte."""
    try:
        while True:
            stream, _ = server_socket.accept()
            threading.Thread(target=_acknowledge_messages, args=(stream,), daemon=True).start()
    except OSError:  # shut down
        return


def _acknowledge_messages(stream: socket.socket) -> None:
    with stream, suppress(OSError):  # the sender has gone, so no error can be reported to it
        while len(header := stream.recv(_SIZE.size, socket.MSG_WAITALL)) == _SIZE.size:
            discard_bytes(stream, *_SIZE.unpack(header))
            stream.sendall(b"+")


def _receive_datagrams(udp_socket: socket.socket) -> tuple[int, str] | None:
    """Receive datagrams, and return their total bytes and the sender's address.

    Return None once the socket is shut down.
    """
    try:
        size_bytes, sender = udp_socket.recvfrom_into(_THREAD_BUFFER.buffer)
    except OSError:
        return None
    return (size_bytes, sender[0]) if size_bytes else None


class _ThreadReceiveBuffer(threading.local):
    """Receive buffer of one thread for probe datagrams.

    Datagrams are counted and then overwritten.
    """

    def __init__(self) -> None:
        self.buffer = bytearray(1 << 16)


_THREAD_BUFFER = _ThreadReceiveBuffer()


def _open_udp_socket(address: str, port: int) -> socket.socket:
    udp_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    udp_socket.bind((address, port))
    return udp_socket
