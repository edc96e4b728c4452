"""A paced worker takes exactly as long as its declared device, and lateness is reported."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.clock import VirtualClock, WallClock
from services.runtime.pacing import DeclaredSpeedPacer, HostSpeedPacer, TimedComputeResult, is_phase_deadline_missed

InVirtualTime = Callable[[Any], Any]


class ComputeTimeClock(VirtualClock):
    """A virtual clock on which compute takes time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def run_compute_function(self, function: Callable[[], Any]) -> Any:
        await self.sleep_until(self.now() + self.seconds)
        return function()


@given(samples=st.integers(0, 1000), throughput=st.floats(0.1, 1e6), slot=st.floats(0, 0.99))
def test_in_virtual_time_a_phase_takes_exactly_samples_over_throughput(
    samples: int, throughput: float, slot: float, in_virtual_time: InVirtualTime
) -> None:
    """This holds for every slot: a slot only defines when within the phase the host computes."""

    async def phase() -> tuple[TimedComputeResult[str], float]:
        clock = VirtualClock()
        phase_result = await DeclaredSpeedPacer(clock, throughput, slot).run_paced(0, samples, lambda: "done")
        return phase_result, clock.now()

    phase_result, seconds = in_virtual_time(phase())

    assert phase_result.result == "done"
    assert seconds == pytest.approx(samples / throughput, rel=1e-9, abs=1e-9)
    assert phase_result.late_s == pytest.approx(0.0, abs=1e-9)
    assert 2 * phase_result.forward_s == pytest.approx(phase_result.backward_s, rel=1e-6, abs=1e-9)


def test_the_durations_of_many_phases_add_up(in_virtual_time: InVirtualTime) -> None:
    """Each deadline is absolute within its phase: a phase includes its compute time and does not add it."""

    async def phases() -> float:
        clock = ComputeTimeClock(0.03)
        pacer = DeclaredSpeedPacer(clock, throughput=100.0, slot=0.0)
        for _ in range(50):
            await pacer.run_paced(0, 10, lambda: None)
        return clock.now()

    assert in_virtual_time(phases()) == pytest.approx(50 * 0.1)


@pytest.mark.parametrize("slot", [0.0, 0.5, 0.875])
def test_compute_in_the_last_slot_still_ends_in_time(slot: float, in_virtual_time: InVirtualTime) -> None:
    """Once the compute time is known, the slot starts early enough for it."""

    async def phases() -> list[float | None]:
        pacer = DeclaredSpeedPacer(ComputeTimeClock(0.03), throughput=100.0, slot=slot)
        return [(await pacer.run_paced(0, 10, lambda: None)).late_s for _ in range(20)]

    late_s = in_virtual_time(phases())

    assert late_s[-10:] == pytest.approx([0.0] * 10, abs=1e-9)


def test_lateness_is_reported(in_virtual_time: InVirtualTime) -> None:
    """A host that is too slow must not look like a slow cluster: the lateness decides whether a run is valid."""

    async def phase() -> float | None:
        return (
            await DeclaredSpeedPacer(ComputeTimeClock(0.25), throughput=100.0, slot=0.0).run_paced(0, 10, lambda: None)
        ).late_s

    assert in_virtual_time(phase()) == pytest.approx(0.25 + 0.002 - 0.1)


def test_an_unpaced_worker_has_no_deadline(in_virtual_time: InVirtualTime) -> None:
    """No throughput was declared, so no deadline can be missed."""
    assert in_virtual_time(HostSpeedPacer(ComputeTimeClock(0.25)).run_paced(0, 10, lambda: 7)) == TimedComputeResult(7)


def test_the_next_phase_makes_up_for_a_late_one(in_virtual_time: InVirtualTime) -> None:
    """The device would have started it earlier; a busy host must not slow the cluster down a little in every step."""

    async def phases() -> tuple[float, list[float | None]]:
        clock = ComputeTimeClock(0.11)
        pacer = DeclaredSpeedPacer(clock, throughput=100.0, slot=0.0)
        late_s = []
        for seconds in (0.11, 0.01, 0.01):
            clock.seconds = seconds
            late_s.append((await pacer.run_paced(0, 10, lambda: None)).late_s)
        return clock.now(), late_s

    end_s, late_s = in_virtual_time(phases())

    assert late_s == pytest.approx([0.012, 0.0, 0.0], abs=1e-9)
    assert end_s == pytest.approx(3 * 0.1)


def test_a_phase_makes_up_for_at_most_a_part_of_its_duration(in_virtual_time: InVirtualTime) -> None:
    """A host that is too slow in every phase stays late, and the lateness is reported."""

    async def phases() -> float:
        clock = ComputeTimeClock(0.3)
        pacer = DeclaredSpeedPacer(clock, throughput=100.0, slot=0.0)
        await pacer.run_paced(0, 10, lambda: None)
        second_start_s = clock.now()
        clock.seconds = 0.01
        await pacer.run_paced(0, 10, lambda: None)
        return clock.now() - second_start_s

    assert in_virtual_time(phases()) == pytest.approx(0.75 * 0.1)


@pytest.mark.parametrize(
    ("late_s", "phase_s", "step_s", "dilation", "missed"),
    [
        (0.0009, 0.001, 0.001, 1.0, False),  # within the accuracy of a timer
        (0.0011, 0.001, 0.001, 1.0, True),
        (0.0009, 0.001, 0.001, 16.0, True),  # 14 ms of the host's time, more than the error of any timer
        (0.00006, 0.001, 0.001, 16.0, False),
        (0.04, 1.0, 1.0, 1.0, False),
        (0.04, 0.1, 1.0, 1.0, True),
        (0.009, 0.1, 1.0, 1.0, False),  # less than 1 % of the step
    ],
)
def test_a_deadline_is_missed_beyond_the_tolerance_of_timer_phase_and_step(
    late_s: float, phase_s: float, step_s: float, dilation: float, missed: bool
) -> None:
    """The error of a timer is a duration of the host's clock, whatever the dilation."""
    assert is_phase_deadline_missed(WallClock(dilation), late_s, phase_s, step_s) == missed


def test_buckets_are_reported_when_the_emulated_device_has_computed_them(in_virtual_time: InVirtualTime) -> None:
    """Exchanges begin as early as on the device, although the host computes the whole step at once."""
    reports: list[float] = []

    async def phase() -> TimedComputeResult[None]:
        clock = ComputeTimeClock(0.01)
        pacer = DeclaredSpeedPacer(clock, throughput=100.0, slot=0.0)
        report = lambda: reports.append(clock.now())  # noqa: E731
        return await pacer.run_paced_in_buckets(
            0, 30, lambda report_computed: report_computed(), [0.5, 0.3, 0.2], report
        )

    phase_result = in_virtual_time(phase())

    assert reports == pytest.approx([0.1 + 0.2 * share for share in (0.5, 0.8, 1.0)])
    assert phase_result.late_s == pytest.approx(0.0, abs=1e-9)


def test_bucket_that_the_host_computes_too_late_counts_as_lateness(in_virtual_time: InVirtualTime) -> None:
    """The last bucket is in time, but the exchange of the first one has begun too late."""

    async def phase() -> TimedComputeResult[None]:
        pacer = DeclaredSpeedPacer(ComputeTimeClock(0.25), throughput=100.0, slot=0.0)
        return await pacer.run_paced_in_buckets(0, 30, lambda _: None, [0.1, 0.9], lambda: None)

    assert in_virtual_time(phase()).late_s == pytest.approx(0.25 - 0.12, abs=0.003)
