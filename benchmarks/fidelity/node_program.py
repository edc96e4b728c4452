"""How fast does data get from here to there, how far is it, how fast is this core? `make bench-fidelity` asks in nodes.

`python -m benchmarks.fidelity.node_program '{"do": "receive", ...}'` in the container of a node, beside the waiting node itself: with
its address, its links, its share of a core and without any capability. The answer is one JSON object. Containers share
the host's monotonic clock, so moments and stamps mean the same in all of them.
"""

import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from threading import Thread
from typing import Any

from services.runtime.scheduling import reduce_wakeup_latency

PIECE_BYTES = 256 << 10
CONNECT_S, RETRY_S = 10.0, 0.01
SPARE_S = 20.0  # after which a socket gives up
WARM_UP_BYTES = 1 << 20  # of a stream that has carried messages before
_MESSAGE = struct.Struct("=dQ")  # moment at which it was sent, bytes
_TCP_INFO_BYTES, _TOTAL_RETRANS_AT, _DATA_SEGMENTS_OUT_AT = 232, 100, 156  # struct tcp_info of linux/tcp.h

Answer = dict[str, Any]
Arrival = tuple[float, int]  # moment, bytes


def receive(address: str, port: int, streams: int, since: float, until: float, buffer: int = 0) -> Answer:
    """Take what some streams carry; payload bytes per second between two moments, of each peer and in all.

    Args:
        address: to listen on.
        port: to listen on.
        streams: how many to wait for.
        since: moment from which on bytes count.
        until: moment at which to stop.
        buffer: receive buffer in bytes, so that a slow link does not drain for seconds; the kernel's choice when 0.
    """
    with _listening(address, port, buffer) as server:
        pairs = [server.accept() for _ in range(streams)]
        arrivals: dict[str, list[Arrival]] = {peer[0]: [] for _, peer in pairs}
        threads = [Thread(target=_take, args=(stream, arrivals[peer[0]], until)) for stream, peer in pairs]
        _together(threads)
    inside = {peer: [each for each in found if each[0] >= since] for peer, found in arrivals.items()}
    return {
        "bytes_per_s": rate([each for found in inside.values() for each in found]),
        "by_peer": {peer: rate(found) for peer, found in inside.items()},
    }


def send(to: str, port: int, at: float, until: float) -> Answer:
    """Send as fast as the link takes it between two moments; how many segments went out, and how many of them again."""
    piece, stream = bytes(PIECE_BYTES), _connected(to, port)
    with stream:
        _sleep_until(at)
        with suppress(OSError):  # the receiver stops first
            while time.monotonic() < until:
                stream.send(piece)
        info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        _abandon(stream)
    segments, again = (struct.unpack_from("=I", info, at)[0] for at in (_DATA_SEGMENTS_OUT_AT, _TOTAL_RETRANS_AT))
    return {"segments": segments, "retransmitted": again}


def messages(address: str, port: int, count: int) -> Answer:
    """Take messages of one stream; seconds from the sending of each to its last byte."""
    taken = []
    with _listening(address, port, 0) as server, server.accept()[0] as stream:
        for _ in range(count + 1):
            sent_at, size = _MESSAGE.unpack(stream.recv(_MESSAGE.size, socket.MSG_WAITALL))
            _swallow(stream, size)
            taken.append(time.monotonic() - sent_at)
            stream.sendall(b"+")
    return {"seconds": taken[1:]}


def message(to: str, port: int, sizes: list[int], gap_s: float) -> Answer:
    """Send messages, each after a pause and an acknowledgement of the one before; a first one warms the stream up."""
    with _connected(to, port) as stream:
        for size in (WARM_UP_BYTES, *sizes):
            data = memoryview(bytes(size))
            time.sleep(gap_s)
            stream.sendall(_MESSAGE.pack(time.monotonic(), size))
            stream.sendall(data)
            stream.recv(1)
    return {}


def echo(address: str, port: int, count: int) -> Answer:
    """Send back what one stream brings."""
    with _listening(address, port, 0) as server, server.accept()[0] as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            stream.sendall(stream.recv(1))
    return {}


def ping(to: str, port: int, count: int, gap_s: float) -> Answer:
    """Seconds of round trips, one after the other."""
    trips = []
    reduce_wakeup_latency()
    with _connected(to, port) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            time.sleep(gap_s)
            started = time.monotonic()
            stream.sendall(b".")
            stream.recv(1)
            trips.append(time.monotonic() - started)
    return {"seconds": trips}


def burn(until: float, step_cpu_s: float) -> Answer:
    """Compute in steps of equal work; wall seconds from each step's end to the next, and CPU seconds per step."""
    work = _work_of(step_cpu_s)
    ends, used = [time.monotonic()], time.process_time()
    while ends[-1] < until:
        _compute(work)
        ends.append(time.monotonic())
    steps = [after - before for before, after in pairwise(ends)]
    return {"steps_s": steps, "cpu_s_per_step": (time.process_time() - used) / len(steps)}


PROGRAMS: Mapping[str, Callable[..., Answer]] = {
    each.__name__: each for each in (receive, send, messages, message, echo, ping, burn)
}


def rate(arrivals: list[Arrival]) -> float:
    """Bytes per second of what came after the first, over the time from the first to the last; 0 of less than two."""
    ordered = sorted(arrivals)
    if len(ordered) < 2 or ordered[-1][0] == ordered[0][0]:  # noqa: PLR2004 - a time has two ends
        return 0.0
    return sum(size for _, size in ordered[1:]) / (ordered[-1][0] - ordered[0][0])


def _take(stream: socket.socket, arrivals: list[Arrival], until: float) -> None:
    buffer = bytearray(PIECE_BYTES)
    stream.settimeout(SPARE_S)
    with stream, suppress(OSError):
        while (now := time.monotonic()) < until and (size := stream.recv_into(buffer)):
            now = time.monotonic()
            arrivals.append((now, size))
        _abandon(stream)


def _swallow(stream: socket.socket, size: int) -> None:
    buffer = bytearray(PIECE_BYTES)
    while size > 0:
        if not (got := stream.recv_into(buffer, min(size, PIECE_BYTES))):
            raise ConnectionError(f"a stream has ended {size} bytes too early")
        size -= got


def _listening(address: str, port: int, buffer: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if buffer:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    server.settimeout(SPARE_S)
    server.bind((address, port))
    server.listen(64)
    return server


def _connected(to: str, port: int) -> socket.socket:
    """A stream to whoever listens, or will soon."""
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            stream = socket.create_connection((to, port), timeout=SPARE_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
        else:
            return stream


def _abandon(stream: socket.socket) -> None:
    """Close without sending what is still queued."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _compute(work: int) -> None:
    for _ in range(work):
        pass


def _work_of(cpu_s: float) -> int:
    """Turns of a loop that take so much CPU time here."""
    turns, spent = 100_000, 0.0
    while spent < cpu_s:
        turns *= 2
        before = time.process_time()
        _compute(turns)
        spent = time.process_time() - before
    return max(1, round(turns * cpu_s / spent))


def _together(threads: list[Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    """Do what the argument says and print the answer."""
    asked = json.loads(sys.argv[1])
    answer = PROGRAMS[asked.pop("do")](**asked)
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
