"""A probe must end: its threads, its ports, and what it says of a sender that is gone."""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from services.runtime.stream_measurement import discard_bytes
from services.shaper import probe

HERE = f"127.{1 + os.getpid() % 250}.0.1"  # of this process: tests run side by side, and ports are fixed


@pytest.fixture
def ear() -> Iterator[probe.ProbeReceiver]:
    opened = probe.ProbeReceiver(HERE)
    opened.start()
    yield opened
    opened.stop()


@pytest.fixture
def half() -> Iterator[socket.socket]:
    """The reading end of a stream whose sender dies after some bytes of what it had announced."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"half")
    theirs.close()
    with ours:
        yield ours


def test_a_closed_ear_has_freed_its_ports() -> None:
    """A node may be probed again; a socket under a blocked reader would go on listening."""
    for _ in range(2):
        ear = probe.ProbeReceiver(HERE)
        ear.start()
        time.sleep(0.05)  # all readers are blocked
        ear.stop()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HERE, probe.MESSAGE_PORT), timeout=1)


@pytest.mark.wall_clock
def test_an_ear_answers_counts_and_acknowledges(ear: probe.ProbeReceiver) -> None:
    since = time.monotonic()
    probe.send_flood({HERE: 10e6}, since, since + 0.1)

    assert sum(ear.rates_by_source_bps(since, time.monotonic()).values()) == pytest.approx(10e6, rel=0.5)
    assert len(probe.measure_round_trips({"me": HERE}, 3, 0.001)["me"]) == 3
    assert 0 < probe.measure_message_seconds(HERE, 100_000) < 5


def test_a_message_that_ends_early_is_an_error_and_no_endless_loop(half: socket.socket) -> None:
    """A stream at its end gives nothing for ever: counting that down took a whole core."""
    with pytest.raises(ConnectionError, match="96 bytes too early"):
        discard_bytes(half, 100)


def test_an_ear_outlives_a_sender_that_dies(ear: probe.ProbeReceiver) -> None:
    before = threading.active_count()
    with socket.create_connection((HERE, probe.MESSAGE_PORT)) as stream:
        stream.sendall(struct.pack(">Q", 100) + b"half")

    deadline = time.monotonic() + 2
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert probe.measure_message_seconds(HERE, 1000) > 0


def test_a_flood_that_can_not_be_sent_says_so() -> None:
    """Otherwise it would look like a slow link. The kernel refuses broadcasts to whoever has not asked for them."""
    with pytest.raises(ConnectionError, match="nothing could be sent to 255"):
        probe.send_flood({"255.255.255.255": 10e6}, time.monotonic(), time.monotonic() + 0.1)
