"""A probe ends its threads, frees its ports and reports a sender that has ended."""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from services.runtime.stream_measurement import discard_bytes
from services.shaper import probe

LOOPBACK_ADDRESS = f"127.{1 + os.getpid() % 250}.0.1"  # of this process: tests run in parallel


@pytest.fixture
def receiver() -> Iterator[probe.ProbeReceiver]:
    probe_receiver = probe.ProbeReceiver(LOOPBACK_ADDRESS)
    probe_receiver.start()
    yield probe_receiver
    probe_receiver.stop()


@pytest.fixture
def interrupted_stream() -> Iterator[socket.socket]:
    """The reading end of a stream whose sender ends before it has sent the announced number of bytes."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"half")
    theirs.close()
    with ours:
        yield ours


def test_a_stopped_receiver_has_freed_its_ports() -> None:
    """A node may be probed again; a socket with a blocked reader would continue to listen."""
    for _ in range(2):
        receiver = probe.ProbeReceiver(LOOPBACK_ADDRESS)
        receiver.start()
        time.sleep(0.05)  # all readers are blocked
        receiver.stop()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK_ADDRESS, probe.MESSAGE_PORT), timeout=1)


@pytest.mark.wall_clock
def test_a_receiver_measures_rates_and_answers_round_trips_and_messages(receiver: probe.ProbeReceiver) -> None:
    since = time.monotonic()
    probe.send_flood({LOOPBACK_ADDRESS: 10e6}, since, since + 0.1)

    assert sum(receiver.rates_by_source_bps(since, time.monotonic()).values()) == pytest.approx(10e6, rel=0.5)
    assert len(probe.measure_round_trips({"me": LOOPBACK_ADDRESS}, 3, 0.001)["me"]) == 3
    assert 0 < probe.measure_message_seconds(LOOPBACK_ADDRESS, 100_000) < 5


def test_a_message_that_ends_early_raises_an_error_and_does_not_loop_for_ever(
    interrupted_stream: socket.socket,
) -> None:
    """Every read at the end of a stream returns no bytes: an endless loop of such reads once used a whole core."""
    with pytest.raises(ConnectionError, match="96 bytes too early"):
        discard_bytes(interrupted_stream, 100)


def test_a_receiver_continues_after_a_sender_dies(receiver: probe.ProbeReceiver) -> None:
    before = threading.active_count()
    with socket.create_connection((LOOPBACK_ADDRESS, probe.MESSAGE_PORT)) as stream:
        stream.sendall(struct.pack(">Q", 100) + b"half")

    deadline = time.monotonic() + 2
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert probe.measure_message_seconds(LOOPBACK_ADDRESS, 1000) > 0


def test_a_flood_that_cannot_be_sent_raises_an_error() -> None:
    """Otherwise it would look like a slow link. The kernel refuses broadcasts from sockets without SO_BROADCAST."""
    with pytest.raises(ConnectionError, match="nothing could be sent to 255"):
        probe.send_flood({"255.255.255.255": 10e6}, time.monotonic(), time.monotonic() + 0.1)
