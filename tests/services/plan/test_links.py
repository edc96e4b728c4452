"""The fluid model of a link: no message is faster than the link, none is lost, and flows share its rate."""

from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.links.fluid_link import (
    AtomicFloatFile,
    FirstLastByteTimes,
    InProcessAtomicFloat,
    RateLimiter,
    to_goodput_bytes_per_s,
)

sizes = st.lists(st.integers(1, 10**6), min_size=1, max_size=12)
rates = st.floats(1e3, 1e9)
AT_ONCE = FirstLastByteTimes(0.0, 0.0)


@given(sizes=sizes, rate=rates)
def test_messages_sent_at_the_same_time_leave_one_after_the_other(sizes: list[int], rate: float) -> None:
    """A link is a queue: all messages together take the sum of the bytes over the rate."""
    port = RateLimiter(rate)

    passed = [port.pass_and_time_message(AT_ONCE, size) for size in sizes]

    assert passed[-1].end_s == pytest.approx(sum(sizes) / rate)
    assert [times.begin_s for times in passed] == [0.0, *(times.end_s for times in passed[:-1])]


@given(sizes=sizes, rate=rates, gaps=st.lists(st.floats(0, 10), min_size=12, max_size=12))
def test_no_message_is_faster_than_the_link(sizes: list[int], rate: float, gaps: list[float]) -> None:
    """An idle link accumulates no capacity, and on a busy one no message overtakes another."""
    port, now, last = RateLimiter(rate), 0.0, 0.0

    for size, gap in zip(sizes, gaps, strict=False):
        now += gap
        begins, ends = port.pass_and_time_message(FirstLastByteTimes(now, now), size)
        assert begins >= max(now, last)
        assert ends - begins == pytest.approx(size / rate, rel=1e-6, abs=1e-9)
        last = ends


@given(sizes=sizes, rate=rates)
def test_senders_share_the_downlink_of_their_receiver(sizes: list[int], rate: float) -> None:
    """n workers push to one server: the shared downlink limits a parameter server."""
    downlink = RateLimiter(rate)

    arrived = [
        downlink.pass_and_time_message(RateLimiter(rate).pass_and_time_message(AT_ONCE, size), size).end_s
        for size in sizes
    ]

    assert arrived[-1] == pytest.approx(sum(sizes) / rate)
    assert arrived == sorted(arrived)


@given(size=st.integers(1, 10**6), chain=st.lists(rates, min_size=1, max_size=4))
def test_the_slowest_link_of_a_chain_determines_the_duration(size: int, chain: list[float]) -> None:
    """A message leaves one link while it enters the other; it is not stored in between."""
    transit = FirstLastByteTimes(1.0, 1.0)

    for rate in chain:
        transit = RateLimiter(rate).pass_and_time_message(transit, size)

    assert transit.begin_s == 1.0
    assert transit.end_s - 1.0 == pytest.approx(size / min(chain), rel=1e-6)


@given(sizes=sizes, chain=st.lists(rates, min_size=2, max_size=4))
def test_a_single_flow_is_as_fast_as_its_slowest_link_and_keeps_its_order(sizes: list[int], chain: list[float]) -> None:
    """It takes all bytes over the slowest rate, and at most the time of the largest message at every other port."""
    ports, ends = [RateLimiter(rate) for rate in chain], []

    for size in sizes:
        transit = AT_ONCE
        for port in ports:
            transit = port.pass_and_time_message(transit, size)
        ends.append(transit.end_s)

    least_s = sum(sizes) / min(chain)
    assert ends == sorted(ends)
    assert least_s * (1 - 1e-9) <= ends[-1] <= least_s + max(sizes) * sum(1 / rate for rate in chain)


@given(slow=st.floats(1e3, 1e5), share=st.floats(10, 1000))
def test_a_slow_sender_leaves_the_rest_of_a_port_to_others(slow: float, share: float) -> None:
    """A message occupies a port only for its bytes: one that arrives slowly must not block a fast one."""
    port, size = RateLimiter(slow * share), 10_000

    slow_transit = port.pass_and_time_message(RateLimiter(slow).pass_and_time_message(AT_ONCE, size), size)
    fast_transit = port.pass_and_time_message(RateLimiter(slow * share).pass_and_time_message(AT_ONCE, size), size)

    assert slow_transit.end_s == pytest.approx(size / slow)
    assert fast_transit.end_s == pytest.approx(2 * size / (slow * share))


def test_an_unshaped_link_takes_no_time() -> None:
    """A link without a declared rate is as fast as the host."""
    assert RateLimiter(to_goodput_bytes_per_s(None)).pass_and_time_message(FirstLastByteTimes(2.0, 2.0), 10**9) == (
        2.0,
        2.0,
    )


def test_a_rate_counts_whole_ethernet_frames_as_the_kernel_does() -> None:
    """1448 of 1514 bytes of a full Ethernet frame are payload; 8 bits make a byte."""
    assert to_goodput_bytes_per_s(1514 * 8) == pytest.approx(1448)


def test_a_port_in_a_file_behaves_like_a_port_in_memory(tmp_path: Path) -> None:
    """All processes that open the file of a pipe share one port."""
    AtomicFloatFile.create(tmp_path / "ports", 3)
    shared = [RateLimiter(1e6, AtomicFloatFile(tmp_path / "ports").number_at(1)) for _ in range(2)]
    alone = RateLimiter(1e6, InProcessAtomicFloat())

    passed = [shared[k % 2].pass_and_time_message(FirstLastByteTimes(k * 0.1, k * 0.1), 200_000) for k in range(10)]

    assert passed == [alone.pass_and_time_message(FirstLastByteTimes(k * 0.1, k * 0.1), 200_000) for k in range(10)]
    assert AtomicFloatFile(tmp_path / "ports").number_at(0).update(lambda value: value) == (0.0, 0.0)


def pass_messages(path: Path, messages: int) -> None:
    """Pass messages through the port in a file; several processes run this function."""
    port = RateLimiter(1.0, AtomicFloatFile(path).number_at(0))
    for _ in range(messages):
        port.pass_and_time_message(AT_ONCE, 1)


def test_no_message_is_lost_when_processes_use_one_pipe_at_once(tmp_path: Path) -> None:
    """The update is atomic: two processes that read the same number would count two messages as one."""
    path, context = tmp_path / "ports", get_context("fork")
    AtomicFloatFile.create(path, 1)
    processes = [context.Process(target=pass_messages, args=(path, 5000)) for _ in range(3)]

    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert RateLimiter(1.0, AtomicFloatFile(path).number_at(0)).next_free_time_s == 15000
