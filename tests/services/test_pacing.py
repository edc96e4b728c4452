"""A paced worker takes exactly what its device would take; what comes late is told."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.clock import VirtualClock, WallClock
from services.runtime.pacing import DeviceSpeedPacer, HostSpeedPacer, TimedComputeResult, is_deadline_missed

Run = Callable[[Any], Any]


class Laborious(VirtualClock):
    """A clock on which mathematics takes time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def run_compute(self, work: Callable[[], Any]) -> Any:
        await self.sleep_until(self.now() + self.seconds)
        return work()


@given(samples=st.integers(0, 1000), throughput=st.floats(0.1, 1e6), slot=st.floats(0, 0.99))
def test_in_virtual_time_a_phase_takes_exactly_samples_over_throughput(
    samples: int, throughput: float, slot: float, in_virtual_time: Run
) -> None:
    """Whatever the slot: it only says when within the phase the host works."""

    async def phase() -> tuple[TimedComputeResult[str], float]:
        clock = VirtualClock()
        done = await DeviceSpeedPacer(clock, throughput, slot).compute(0, samples, lambda: "done")
        return done, clock.now()

    done, seconds = in_virtual_time(phase())

    assert done.result == "done"
    assert seconds == pytest.approx(samples / throughput, rel=1e-9, abs=1e-9)
    assert done.late_s == pytest.approx(0.0, abs=1e-9)
    assert 2 * done.forward_s == pytest.approx(done.backward_s, rel=1e-6, abs=1e-9)


def test_many_phases_end_where_their_sum_does(in_virtual_time: Run) -> None:
    """Each deadline is absolute within its phase: the work before it is inside it, not added to it."""

    async def phases() -> float:
        clock = Laborious(0.03)
        pace = DeviceSpeedPacer(clock, throughput=100.0, slot=0.0)
        for _ in range(50):
            await pace.compute(0, 10, lambda: None)
        return clock.now()

    assert in_virtual_time(phases()) == pytest.approx(50 * 0.1)


@pytest.mark.parametrize("slot", [0.0, 0.5, 0.875])
def test_the_mathematics_of_the_last_slot_still_ends_in_time(slot: float, in_virtual_time: Run) -> None:
    """Once it is known how long the mathematics takes, its slot leaves room for it."""

    async def phases() -> list[float | None]:
        pace = DeviceSpeedPacer(Laborious(0.03), throughput=100.0, slot=slot)
        return [(await pace.compute(0, 10, lambda: None)).late_s for _ in range(20)]

    late = in_virtual_time(phases())

    assert late[-10:] == pytest.approx([0.0] * 10, abs=1e-9)


def test_what_ends_late_is_told(in_virtual_time: Run) -> None:
    """A host that is too slow must not pass for a slow cluster: the lateness decides whether a run is believed."""

    async def phase() -> float | None:
        return (await DeviceSpeedPacer(Laborious(0.25), throughput=100.0, slot=0.0).compute(0, 10, lambda: None)).late_s

    assert in_virtual_time(phase()) == pytest.approx(0.25 + 0.002 - 0.1)


def test_an_unpaced_worker_has_no_deadline(in_virtual_time: Run) -> None:
    """Nothing was declared, so nothing can be missed."""
    assert in_virtual_time(HostSpeedPacer(Laborious(0.25)).compute(0, 10, lambda: 7)) == TimedComputeResult(7)


def test_the_next_phase_makes_up_for_a_late_one(in_virtual_time: Run) -> None:
    """The device would have begun it earlier; a busy host must not slow a cluster down by a little in every step."""

    async def phases() -> tuple[float, list[float | None]]:
        clock = Laborious(0.11)
        pace = DeviceSpeedPacer(clock, throughput=100.0, slot=0.0)
        late = []
        for seconds in (0.11, 0.01, 0.01):
            clock.seconds = seconds
            late.append((await pace.compute(0, 10, lambda: None)).late_s)
        return clock.now(), late

    ended, late = in_virtual_time(phases())

    assert late == pytest.approx([0.012, 0.0, 0.0], abs=1e-9)
    assert ended == pytest.approx(3 * 0.1)


def test_no_more_is_made_up_for_than_a_part_of_a_phase(in_virtual_time: Run) -> None:
    """A host that is too slow altogether stays too slow, and is told so."""

    async def phases() -> float:
        clock = Laborious(0.3)
        pace = DeviceSpeedPacer(clock, throughput=100.0, slot=0.0)
        await pace.compute(0, 10, lambda: None)
        begun = clock.now()
        clock.seconds = 0.01
        await pace.compute(0, 10, lambda: None)
        return clock.now() - begun

    assert in_virtual_time(phases()) == pytest.approx(0.75 * 0.1)


@pytest.mark.parametrize(
    ("late_s", "phase_s", "step_s", "dilation", "missed"),
    [
        (0.0009, 0.001, 0.001, 1.0, False),  # no timer promises that
        (0.0011, 0.001, 0.001, 1.0, True),
        (0.0009, 0.001, 0.001, 16.0, True),  # 14 ms of the host's time, which any timer promises
        (0.00006, 0.001, 0.001, 16.0, False),
        (0.04, 1.0, 1.0, 1.0, False),
        (0.04, 0.1, 1.0, 1.0, True),
        (0.009, 0.1, 1.0, 1.0, False),  # less than 1 % of the step
    ],
)
def test_a_deadline_is_missed_by_more_than_timer_phase_and_step_allow(
    late_s: float, phase_s: float, step_s: float, dilation: float, missed: bool
) -> None:
    """Timers are late by the host's clock, however slowly the scenario runs."""
    assert is_deadline_missed(WallClock(dilation), late_s, phase_s, step_s) == missed
