"""Measuring programs that run in the containers of nodes: transfer rates, message times, round trips, speed of a core.

Usage: `python -m benchmarks.fidelity.node_program '{"program": "receive_streams", "address": ...}'`. A program runs in
the container of a waiting node and has the node's address, links and share of a core, but no capability. It prints its
result as one JSON object. All containers share the monotonic clock of the host, so times can be compared between them.
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
from services.runtime.stream_measurement import Arrival, arrival_rate_bytes_per_s, discard_bytes

PIECE_BYTES = 256 << 10
CONNECT_TIMEOUT_S, CONNECT_RETRY_S = 10.0, 0.01
SOCKET_TIMEOUT_S = 20.0
WARM_UP_BYTES = 1 << 20  # size of the first message of a stream, which is not measured
_MESSAGE_HEADER = struct.Struct("=dQ")  # time of sending in monotonic seconds, length of the message in bytes
_TCP_INFO_BYTES, _TOTAL_RETRANS_OFFSET, _DATA_SEGMENTS_OUT_OFFSET = 232, 100, 156  # struct tcp_info of linux/tcp.h

ProgramResult = dict[str, Any]


def receive_streams(
    address: str, port: int, stream_count: int, start_s: float, end_s: float, buffer_bytes: int = 0
) -> ProgramResult:
    """Receive TCP streams and return the payload bytes per second between two times, per peer and in total.

    Args:
        address: address to listen on.
        port: port to listen on.
        stream_count: number of streams to wait for.
        start_s: monotonic time from which on bytes are counted.
        end_s: monotonic time at which to stop.
        buffer_bytes: receive buffer, so that a slow link does not drain for seconds; 0 leaves the size to the kernel.
    """
    with _listen(address, port, buffer_bytes) as server:
        pairs = [server.accept() for _ in range(stream_count)]
        arrivals: dict[str, list[Arrival]] = {peer[0]: [] for _, peer in pairs}
        threads = [Thread(target=_record_arrivals, args=(stream, arrivals[peer[0]], end_s)) for stream, peer in pairs]
        _run_threads(threads)
    counted = {peer: [arrival for arrival in of_peer if arrival[0] >= start_s] for peer, of_peer in arrivals.items()}
    return {
        "bytes_per_s": arrival_rate_bytes_per_s([arrival for of_peer in counted.values() for arrival in of_peer]),
        "by_peer": {peer: arrival_rate_bytes_per_s(of_peer) for peer, of_peer in counted.items()},
    }


def send_stream(target_address: str, port: int, start_s: float, end_s: float) -> ProgramResult:
    """Send at full speed between two times. Return the number of TCP segments sent and of those retransmitted."""
    piece, stream = bytes(PIECE_BYTES), _connect(target_address, port)
    with stream:
        _sleep_until(start_s)
        with suppress(OSError):  # the receiver stops first
            while time.monotonic() < end_s:
                stream.send(piece)
        info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        _discard_unsent_on_close(stream)
    (segments,) = struct.unpack_from("=I", info, _DATA_SEGMENTS_OUT_OFFSET)
    (retransmitted,) = struct.unpack_from("=I", info, _TOTAL_RETRANS_OFFSET)
    return {"segments": segments, "retransmitted": retransmitted}


def receive_messages(address: str, port: int, message_count: int) -> ProgramResult:
    """Receive messages of one stream. Return for each the seconds from its sending to the arrival of its last byte."""
    durations_s = []
    with _listen(address, port, 0) as server, server.accept()[0] as stream:
        for _ in range(message_count + 1):
            sent_at, size = _MESSAGE_HEADER.unpack(stream.recv(_MESSAGE_HEADER.size, socket.MSG_WAITALL))
            discard_bytes(stream, size)
            durations_s.append(time.monotonic() - sent_at)
            stream.sendall(b"+")
    return {"seconds": durations_s[1:]}


def send_messages(target_address: str, port: int, sizes_bytes: list[int], gap_s: float) -> ProgramResult:
    """Send messages on one stream, each after a pause and after the acknowledgement of the message before.

    A first message of `WARM_UP_BYTES` warms the stream up.
    """
    with _connect(target_address, port) as stream:
        for size in (WARM_UP_BYTES, *sizes_bytes):
            data = memoryview(bytes(size))
            time.sleep(gap_s)
            stream.sendall(_MESSAGE_HEADER.pack(time.monotonic(), size))
            stream.sendall(data)
            stream.recv(1)
    return {}


def echo_bytes(address: str, port: int, byte_count: int) -> ProgramResult:
    """Send the bytes of one stream back, one by one."""
    with _listen(address, port, 0) as server, server.accept()[0] as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(byte_count):
            stream.sendall(stream.recv(1))
    return {}


def measure_round_trips(target_address: str, port: int, trip_count: int, gap_s: float) -> ProgramResult:
    """Send single bytes to an echo server. Return the seconds of each round trip."""
    trips_s = []
    reduce_wakeup_latency()
    with _connect(target_address, port) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(trip_count):
            time.sleep(gap_s)
            started = time.monotonic()
            stream.sendall(b".")
            stream.recv(1)
            trips_s.append(time.monotonic() - started)
    return {"seconds": trips_s}


def run_equal_steps(end_s: float, step_cpu_s: float) -> ProgramResult:
    """Compute in steps of equal work until `end_s`. Return each step's wall seconds and the mean CPU seconds."""
    turns = _loop_turns_of(step_cpu_s)
    step_ends_s, cpu_start_s = [time.monotonic()], time.process_time()
    while step_ends_s[-1] < end_s:
        _run_loop(turns)
        step_ends_s.append(time.monotonic())
    steps_s = [after - before for before, after in pairwise(step_ends_s)]
    return {"steps_s": steps_s, "cpu_s_per_step": (time.process_time() - cpu_start_s) / len(steps_s)}


PROGRAMS: Mapping[str, Callable[..., ProgramResult]] = {
    program.__name__: program
    for program in (
        receive_streams,
        send_stream,
        receive_messages,
        send_messages,
        echo_bytes,
        measure_round_trips,
        run_equal_steps,
    )
}


def _record_arrivals(stream: socket.socket, arrivals: list[Arrival], end_s: float) -> None:
    buffer = bytearray(PIECE_BYTES)
    stream.settimeout(SOCKET_TIMEOUT_S)
    with stream, suppress(OSError):
        while (now := time.monotonic()) < end_s and (size := stream.recv_into(buffer)):
            now = time.monotonic()
            arrivals.append((now, size))
        _discard_unsent_on_close(stream)


def _listen(address: str, port: int, buffer_bytes: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if buffer_bytes:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    server.settimeout(SOCKET_TIMEOUT_S)
    server.bind((address, port))
    server.listen(64)
    return server


def _connect(target_address: str, port: int) -> socket.socket:
    """Return a stream to a listening peer. Wait up to CONNECT_TIMEOUT_S for the peer to listen."""
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            stream = socket.create_connection((target_address, port), timeout=SOCKET_TIMEOUT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(CONNECT_RETRY_S)
        else:
            return stream


def _discard_unsent_on_close(stream: socket.socket) -> None:
    """Set the stream to discard its unsent bytes when it is closed."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _sleep_until(moment_s: float) -> None:
    time.sleep(max(0.0, moment_s - time.monotonic()))


def _run_loop(turns: int) -> None:
    for _ in range(turns):
        pass


def _loop_turns_of(cpu_s: float) -> int:
    """Return the number of turns of an empty loop that take `cpu_s` of CPU time on this core."""
    turns, spent_s = 100_000, 0.0
    while spent_s < cpu_s:
        turns *= 2
        before_s = time.process_time()
        _run_loop(turns)
        spent_s = time.process_time() - before_s
    return max(1, round(turns * cpu_s / spent_s))


def _run_threads(threads: list[Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    """Run the program that the JSON argument names and print its result."""
    arguments = json.loads(sys.argv[1])
    result = PROGRAMS[arguments.pop("program")](**arguments)
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
