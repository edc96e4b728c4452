"""What is seen of the host while a trial runs: enough to doubt a trial, and nothing that was not there."""

import time

import pytest

from compose.engines.containers import throttling
from compose.host import host_facts as host
from compose.host.host_facts import CpuTimes
from compose.host.host_metrics import HostMetricsRecorder, WakeUpDelayMeter
from services.plan.trial_outcome import CpuThrottling


def counted(periods: int, throttled_periods: int) -> dict[str, CpuThrottling]:
    """Counters of one container."""
    return {"worker-0": CpuThrottling(periods=periods, throttled_periods=throttled_periods, throttled_s=0.0)}


def test_a_canary_tells_how_late_it_woke() -> None:
    """Its maximum is no less than its median, and a host that runs this test lets it sleep at all."""
    canary = WakeUpDelayMeter()

    canary.start()
    time.sleep(0.1)
    late = canary.stop()

    assert 0 <= late["p50"] <= late["p99"] <= late["max"]


def test_throttling_is_what_was_added_during_the_run_and_survives_the_container() -> None:
    """Counters start with the container, which is before the run, and are gone with it, which may be before the end."""
    looks = iter([counted(10, 5), counted(30, 8), {}])
    evidence = HostMetricsRecorder(lambda: next(looks, {}))

    evidence.start()
    time.sleep(0.3)
    evidence.stop()

    assert evidence.cpu_throttling_growth == counted(20, 3)


def test_busy_and_stolen_shares_are_of_all_cores() -> None:
    """A core that a hypervisor gave away was neither idle nor ours."""
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
def test_both_versions_of_control_groups_are_read(text: str) -> None:
    """They count the same in other units."""
    assert throttling.parse_cpu_stat(text) == CpuThrottling(periods=100, throttled_periods=7, throttled_s=1.5)
