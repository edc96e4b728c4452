"""Metrics of the host, such as its load, while a trial runs.

Checks in `analysis` use these metrics. A canary thread sleeps for one millisecond again and again. Load that wakes it
late also delays nodes. Counters of the kernel are read before and after the trial. Those of containers are also read
during it, since they vanish with the container.
"""

import threading
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compose.host.host_facts import CpuTimes, cpu_busy_share, cpu_stolen_share, read_cpu_times, read_stall_s_by_resource
from services.plan.trial_outcome import CpuThrottleCounts, HostMetrics
from services.runtime.scheduling import reduce_wakeup_latency

CANARY_SLEEP_S = 0.001
POLL_INTERVAL_S = 0.2  # between two readings of container counters; growth after the last reading is lost
MAX_POLL_CORE_SHARE = 0.02  # share of one core for readings; slow readings are made less often
LATENESS_QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}

ThrottlingCounters = Mapping[str, CpuThrottleCounts]  # node -> counters since its start


class WakeUpDelayMeter:
    """Measures how late the host wakes up an idle thread.

    A thread sleeps repeatedly and records the delay of each wake-up.
    """

    def __init__(self) -> None:
        self._late_s = array("f")
        self._stop_requested = threading.Event()
        self._thread = threading.Thread(target=self._measure_wake_up_delays, daemon=True)

    def start(self) -> None:
        """Start the thread that measures wake-up delays."""
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Stop the thread that measures wake-up delays.

        Return p50, p99 and max of its wake-up delays in wall ms, or {} if it never slept.
        """
        self._stop_requested.set()
        self._thread.join()
        late_s = sorted(self._late_s)
        last = len(late_s) - 1
        if not late_s:
            return {}
        return {name: round(1e3 * late_s[int(share * last)], 3) for name, share in LATENESS_QUANTILES.items()}

    def _measure_wake_up_delays(self) -> None:
        reduce_wakeup_latency()
        while not self._stop_requested.is_set():
            wake_time = time.monotonic() + CANARY_SLEEP_S
            time.sleep(CANARY_SLEEP_S)
            self._late_s.append(time.monotonic() - wake_time)


@dataclass
class HostMetricsRecorder:
    """Recorder of CPU load, throttling, waiting times and wake-up delays of this host, from `start` to `stop`."""

    read_throttling: Callable[[], ThrottlingCounters]  # counters of the containers that still run
    canary: WakeUpDelayMeter = field(default_factory=WakeUpDelayMeter)
    _first_cpu_times: CpuTimes | None = None
    _first_stall_s: dict[str, float] = field(default_factory=dict)
    _start_time: float = 0.0
    _first_throttling: dict[str, CpuThrottleCounts] = field(default_factory=dict)
    _last_throttling: dict[str, CpuThrottleCounts] = field(default_factory=dict)
    _stop_requested: threading.Event = field(default_factory=threading.Event)
    _poll_thread: threading.Thread | None = None

    def start(self) -> None:
        """Start recording the metrics of the host."""
        self._first_throttling = self._last_throttling = dict(self.read_throttling())
        self._first_cpu_times, self._first_stall_s = read_cpu_times(), read_stall_s_by_resource()
        self._start_time = time.monotonic()
        self._poll_thread = threading.Thread(target=self._poll_throttling_counters, daemon=True)
        self._poll_thread.start()
        self.canary.start()

    def stop(self) -> HostMetrics:
        """Stop recording, and return the metrics of the host.

        The result is empty if recording never started.
        """
        self._stop_requested.set()
        if self._poll_thread is None:
            return {}
        self._poll_thread.join()
        elapsed_s, after = time.monotonic() - self._start_time, read_cpu_times()
        return {
            "cpu_busy": cpu_busy_share(self._first_cpu_times, after),
            "cpu_steal": cpu_stolen_share(self._first_cpu_times, after),
            "pressure": {
                name: round((total - self._first_stall_s.get(name, total)) / elapsed_s, 4)
                for name, total in read_stall_s_by_resource().items()
            },
            "canary_late_ms": self.canary.stop(),
        }

    @property
    def cpu_throttling_by_node(self) -> dict[str, CpuThrottleCounts]:
        """CPU throttling of each node's container during the recording.

        It is the growth of the container's counters. The values are known after `stop`.
        """
        last = self._last_throttling
        return {node: _throttling_growth_between(first, last[node]) for node, first in self._first_throttling.items()}

    def _poll_throttling_counters(self) -> None:
        """Read the throttling counters of all containers repeatedly, until `stop` is called.

        The last values are kept.
        """
        while True:
            start_time = time.monotonic()
            self._last_throttling = self._last_throttling | dict(self.read_throttling())
            took_s = time.monotonic() - start_time
            if self._stop_requested.wait(max(POLL_INTERVAL_S, took_s / MAX_POLL_CORE_SHARE)):
                return


def _throttling_growth_between(
    counters_before: CpuThrottleCounts, counters_after: CpuThrottleCounts
) -> CpuThrottleCounts:
    return CpuThrottleCounts(
        periods=counters_after.periods - counters_before.periods,
        throttled_periods=counters_after.throttled_periods - counters_before.throttled_periods,
        throttled_s=round(counters_after.throttled_s - counters_before.throttled_s, 6),
    )
