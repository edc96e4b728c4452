"""Virtual time jumps from timer to timer; a dilated wall clock is slowed down; both report virtual seconds."""

import asyncio
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.clock import Clock, VirtualClock, VirtualTimeLoop, WallClock, make_precise_event_loop

InVirtualTime = Callable[[Any], Any]


@given(delays=st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_timers_fire_in_order_at_exactly_their_time(delays: list[float], in_virtual_time: InVirtualTime) -> None:
    """All times that a simulation reports depend on this."""

    async def sleep() -> list[tuple[float, float]]:
        loop, fired = asyncio.get_running_loop(), []
        for delay in delays:
            loop.call_at(delay, lambda due=delay: fired.append((due, loop.time())))
        await asyncio.sleep(max(delays) + 1)
        return fired

    fired = in_virtual_time(sleep())

    assert [due for due, _ in fired] == sorted(delays)
    assert all(now == pytest.approx(due, rel=1e-9, abs=1e-9) for due, now in fired)


def test_a_month_of_virtual_time_takes_less_than_a_second(in_virtual_time: InVirtualTime) -> None:
    """Virtual time does not depend on wall time. (Beyond 97 days asyncio's clock resolution is lost in a float.)"""
    started = time.monotonic()

    in_virtual_time(asyncio.sleep(30 * 86400))

    assert time.monotonic() - started < 1


def test_a_deadlock_raises_an_error_and_does_not_hang() -> None:
    """Two nodes that wait for each other must end the simulation with an error."""

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="deadlock"), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(wait())


def test_compute_takes_no_virtual_time(in_virtual_time: InVirtualTime) -> None:
    """The scenario declares a worker's speed; the time that this host needs must not count."""

    async def compute() -> tuple[int, float, float]:
        clock = VirtualClock()
        started = clock.now()
        result = await clock.run_compute_function(lambda: (time.sleep(0.01), 7)[1])
        return result, clock.now() - started, clock.to_wall_s(3.0)

    assert in_virtual_time(compute()) == (7, 0.0, 3.0)


@pytest.mark.parametrize("dilation", [1.0, 4.0])
@pytest.mark.wall_clock
def test_a_dilated_clock_counts_fewer_seconds_and_waits_longer(dilation: float) -> None:
    """A slow host emulates a fast cluster by slowing rates, deadlines and timestamps by the same factor."""

    async def sleep() -> tuple[float, float, float]:
        clock, wall = WallClock(dilation), time.monotonic()
        started, started_ms = clock.now(), clock.timestamp_ms()
        await clock.sleep_until(started + 0.05 / dilation)
        return time.monotonic() - wall, clock.now() - started, clock.timestamp_ms() - started_ms

    wall_s, virtual_s, virtual_ms = asyncio.run(sleep())

    assert wall_s == pytest.approx(0.05, abs=0.02)
    assert virtual_s == pytest.approx(wall_s / dilation, rel=0.05)
    assert virtual_ms == pytest.approx(virtual_s * 1e3, rel=0.05)
    assert WallClock(dilation).to_wall_s(2.0) == 2.0 * dilation


@pytest.mark.parametrize("clock", [WallClock(), VirtualClock()], ids=["wall", "virtual"])
@pytest.mark.wall_clock
def test_sleeping_until_a_past_deadline_returns_at_once(clock: Clock, in_virtual_time: InVirtualTime) -> None:
    """A worker that is late must not become even later."""

    async def sleep() -> float:
        started = clock.now()
        await clock.sleep_until(started - 10)
        return clock.now() - started

    assert in_virtual_time(sleep()) < 0.01


@pytest.mark.wall_clock
def test_timers_of_the_precise_loop_are_accurate_to_a_fraction_of_a_millisecond() -> None:
    """A step of a few milliseconds consists of such waits; an ordinary loop rounds each wait up to a millisecond."""

    async def sleep() -> list[float]:
        loop, late_s = asyncio.get_running_loop(), []
        for _ in range(60):
            due = loop.time() + 0.0023
            await asyncio.sleep(due - loop.time())
            late_s.append(loop.time() - due)
        return late_s

    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        late_s = runner.run(sleep())

    assert min(late_s) > -1e-4
    assert median(late_s) < 0.3e-3
