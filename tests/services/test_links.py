"""The fluid model of a link: nothing is faster than it, nothing is lost, senders share a receiver."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.links import Port, goodput

sizes = st.lists(st.integers(1, 10**6), min_size=1, max_size=12)
rates = st.floats(1e3, 1e9)


@given(sizes=sizes, rate=rates)
def test_messages_handed_over_at_once_leave_one_after_the_other(sizes: list[int], rate: float) -> None:
    """A link is a queue: all together take the sum of the bytes over the rate."""
    port = Port(rate)

    passed = [port.take(0.0, size) for size in sizes]

    assert passed[-1][1] == pytest.approx(sum(sizes) / rate)
    assert [start for start, _ in passed] == [0.0, *(end for _, end in passed[:-1])]


@given(sizes=sizes, rate=rates, gaps=st.lists(st.floats(0, 10), min_size=12, max_size=12))
def test_no_message_is_faster_than_the_link(sizes: list[int], rate: float, gaps: list[float]) -> None:
    """An idle link saves nothing up, and a busy one makes nobody overtake."""
    port, now, last = Port(rate), 0.0, 0.0

    for size, gap in zip(sizes, gaps, strict=False):
        now += gap
        start, end = port.take(now, size)
        assert start >= max(now, last)
        assert end - start == pytest.approx(size / rate, rel=1e-6, abs=1e-9)
        last = end


@given(sizes=sizes, rate=rates)
def test_senders_share_the_downlink_of_their_receiver(sizes: list[int], rate: float) -> None:
    """n workers push to one server: that its downlink is shared is what limits a parameter server."""
    downlink = Port(rate)

    arrived = [downlink.give(*Port(rate).take(0.0, size), size) for size in sizes]

    assert arrived[-1] == pytest.approx(sum(sizes) / rate)
    assert arrived == sorted(arrived)


@given(size=st.integers(1, 10**6), up=rates, down=rates)
def test_between_two_links_the_slower_one_counts(size: int, up: float, down: float) -> None:
    """A message leaves one link while it enters the other; it is not stored in between."""
    start, passed = Port(up).take(1.0, size)

    arrived = Port(down).give(start, passed, size)

    assert arrived - 1.0 == pytest.approx(size / min(up, down), rel=1e-6)


def test_an_unshaped_link_takes_no_time() -> None:
    """Absent means as fast as the host."""
    assert Port(goodput(None)).take(2.0, 10**9) == (2.0, 2.0)


def test_a_rate_counts_whole_frames_as_the_kernel_does() -> None:
    """1448 of 1514 bytes of a full Ethernet frame are payload; 8 bits make a byte."""
    assert goodput(1514 * 8) == pytest.approx(1448)
