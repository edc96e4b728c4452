"""Host metrics of a trial: they are enough to question a trial, and contain nothing from outside it."""

import time

import pytest

from compose.engines.containers import throttling
from compose.host import host_facts as host
from compose.host.host_facts import CpuTimes
from compose.host.host_metrics import HostMetricsRecorder, WakeUpDelayMeter
from services.plan.trial_outcome import CpuThrottleCounts


def throttling_counters(periods: int, throttled_periods: int) -> dict[str, CpuThrottleCounts]:
    """Return the throttling counters of one container."""
    return {"worker-0": CpuThrottleCounts(periods=periods, throttled_periods=throttled_periods, throttled_s=0.0)}


def test_the_wake_up_meter_reports_how_late_its_thread_woke() -> None:
    """The maximum is at least the median, and a host that runs this test lets the thread sleep."""
    meter = WakeUpDelayMeter()

    meter.start()
    time.sleep(0.1)
    delays = meter.stop()

    assert 0 <= delays["p50"] <= delays["p99"] <= delays["max"]


def test_throttling_is_the_growth_during_the_run_and_outlives_the_container() -> None:
    """Counters start with the container, before the run, and vanish with it, possibly before the end of the run."""
    readings = iter([throttling_counters(10, 5), throttling_counters(30, 8), {}])
    recorder = HostMetricsRecorder(lambda: next(readings, {}))

    recorder.start()
    time.sleep(0.3)
    recorder.stop()

    assert recorder.cpu_throttling_by_node == throttling_counters(20, 3)


def test_busy_and_stolen_shares_refer_to_all_cores() -> None:
    """Time of a core that the hypervisor gave away was neither idle nor available to this host."""
    before, after = CpuTimes(idle=100, total=200, steal=0), CpuTimes(idle=150, total=300, steal=10)

    assert host.cpu_busy_share(before, after) == 0.5
    assert host.cpu_stolen_share(before, after) == 0.1


@pytest.mark.parametrize(
    "text",
    [
        "nr_periods 100\nnr_throttled 7\nthrottled_time 1500000000\n",
        "usage_usec 1\nnr_periods 100\nnr_throttled 7\nthrottled_usec 1500000\n",
    ],
)
def test_statistics_of_both_cgroup_versions_are_parsed(text: str) -> None:
    """The two versions report the same counts in different units."""
    assert throttling.parse_cpu_stat(text) == CpuThrottleCounts(periods=100, throttled_periods=7, throttled_s=1.5)
