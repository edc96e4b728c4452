"""The fluid model of a link: nothing is faster than it, nothing is lost, whoever shares a port shares its rate."""

from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.links.fluid_link import (
    AtomicNumberFile,
    LocalAtomicNumber,
    MessageTransitTimes,
    RateLimiter,
    goodput_bytes_per_s,
)

sizes = st.lists(st.integers(1, 10**6), min_size=1, max_size=12)
rates = st.floats(1e3, 1e9)
AT_ONCE = MessageTransitTimes(0.0, 0.0)


@given(sizes=sizes, rate=rates)
def test_messages_handed_over_at_once_leave_one_after_the_other(sizes: list[int], rate: float) -> None:
    """A link is a queue: all together take the sum of the bytes over the rate."""
    port = RateLimiter(rate)

    passed = [port.pass_message(AT_ONCE, size) for size in sizes]

    assert passed[-1].end_s == pytest.approx(sum(sizes) / rate)
    assert [each.begin_s for each in passed] == [0.0, *(each.end_s for each in passed[:-1])]


@given(sizes=sizes, rate=rates, gaps=st.lists(st.floats(0, 10), min_size=12, max_size=12))
def test_no_message_is_faster_than_the_link(sizes: list[int], rate: float, gaps: list[float]) -> None:
    """An idle link saves nothing up, and a busy one makes nobody overtake."""
    port, now, last = RateLimiter(rate), 0.0, 0.0

    for size, gap in zip(sizes, gaps, strict=False):
        now += gap
        begins, ends = port.pass_message(MessageTransitTimes(now, now), size)
        assert begins >= max(now, last)
        assert ends - begins == pytest.approx(size / rate, rel=1e-6, abs=1e-9)
        last = ends


@given(sizes=sizes, rate=rates)
def test_senders_share_the_downlink_of_their_receiver(sizes: list[int], rate: float) -> None:
    """n workers push to one server: that its downlink is shared is what limits a parameter server."""
    downlink = RateLimiter(rate)

    arrived = [downlink.pass_message(RateLimiter(rate).pass_message(AT_ONCE, size), size).end_s for size in sizes]

    assert arrived[-1] == pytest.approx(sum(sizes) / rate)
    assert arrived == sorted(arrived)


@given(size=st.integers(1, 10**6), chain=st.lists(rates, min_size=1, max_size=4))
def test_along_a_chain_of_links_the_slowest_counts(size: int, chain: list[float]) -> None:
    """A message leaves one link while it enters the other; it is not stored in between."""
    passage = MessageTransitTimes(1.0, 1.0)

    for rate in chain:
        passage = RateLimiter(rate).pass_message(passage, size)

    assert passage.begin_s == 1.0
    assert passage.end_s - 1.0 == pytest.approx(size / min(chain), rel=1e-6)


@given(sizes=sizes, chain=st.lists(rates, min_size=2, max_size=4))
def test_a_flow_alone_is_as_fast_as_its_slowest_link_and_keeps_its_order(sizes: list[int], chain: list[float]) -> None:
    """The bytes of all messages over the slowest rate, and what the largest message may wait at each other port."""
    ports, ends = [RateLimiter(rate) for rate in chain], []

    for size in sizes:
        passage = AT_ONCE
        for port in ports:
            passage = port.pass_message(passage, size)
        ends.append(passage.end_s)

    least_s = sum(sizes) / min(chain)
    assert ends == sorted(ends)
    assert least_s * (1 - 1e-9) <= ends[-1] <= least_s + max(sizes) * sum(1 / rate for rate in chain)


@given(slow=st.floats(1e3, 1e5), share=st.floats(10, 1000))
def test_a_slow_sender_leaves_the_rest_of_a_port_to_others(slow: float, share: float) -> None:
    """A port is charged the bytes that pass it: a message that trickles in must not keep a fast one out."""
    port, size = RateLimiter(slow * share), 10_000

    trickle = port.pass_message(RateLimiter(slow).pass_message(AT_ONCE, size), size)
    fast = port.pass_message(RateLimiter(slow * share).pass_message(AT_ONCE, size), size)

    assert trickle.end_s == pytest.approx(size / slow)
    assert fast.end_s == pytest.approx(2 * size / (slow * share))


def test_an_unshaped_link_takes_no_time() -> None:
    """Absent means as fast as the host."""
    assert RateLimiter(goodput_bytes_per_s(None)).pass_message(MessageTransitTimes(2.0, 2.0), 10**9) == (2.0, 2.0)


def test_a_rate_counts_whole_frames_as_the_kernel_does() -> None:
    """1448 of 1514 bytes of a full Ethernet frame are payload; 8 bits make a byte."""
    assert goodput_bytes_per_s(1514 * 8) == pytest.approx(1448)


def test_a_port_in_a_file_does_what_a_port_in_memory_does(tmp_path: Path) -> None:
    """Processes that share a pipe see one port, whoever has opened the file."""
    AtomicNumberFile.create(tmp_path / "ports", 3)
    shared = [RateLimiter(1e6, AtomicNumberFile(tmp_path / "ports").number_at(1)) for _ in range(2)]
    alone = RateLimiter(1e6, LocalAtomicNumber())

    found = [shared[k % 2].pass_message(MessageTransitTimes(k * 0.1, k * 0.1), 200_000) for k in range(10)]

    assert found == [alone.pass_message(MessageTransitTimes(k * 0.1, k * 0.1), 200_000) for k in range(10)]
    assert AtomicNumberFile(tmp_path / "ports").number_at(0).update(lambda value: value) == (0.0, 0.0)


def pass_many(path: Path, messages: int) -> None:
    """What one of several processes does."""
    port = RateLimiter(1.0, AtomicNumberFile(path).number_at(0))
    for _ in range(messages):
        port.pass_message(AT_ONCE, 1)


def test_no_message_is_lost_when_processes_pass_one_pipe_at_once(tmp_path: Path) -> None:
    """Read, change and write are one: two processes that read the same number would pass two messages as one."""
    path, context = tmp_path / "ports", get_context("fork")
    AtomicNumberFile.create(path, 1)
    processes = [context.Process(target=pass_many, args=(path, 5000)) for _ in range(3)]

    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert RateLimiter(1.0, AtomicNumberFile(path).number_at(0)).next_free_time_s == 15000
