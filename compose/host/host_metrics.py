"""What happened on the host while a trial ran? Evidence for or against its numbers; `analysis` judges it.

A canary sleeps for a millisecond again and again: what makes it late makes nodes late. Counters of the kernel are read
before and after, those of containers meanwhile too, since they are gone with the container.
"""

import threading
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compose.engines.base import CpuThrottling
from compose.host.host_facts import CpuTimes, busy_share, cpu_times, stalled_s, stolen_share
from services.runtime.scheduling import reduce_wakeup_latency

NAP_S = 0.001
LOOK_S = 0.2  # between two looks at the counters of containers; what was counted after the last is lost
LOOK_SHARE = 0.02  # of a core, for hosts where a look takes longer
SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}

Counters = Mapping[str, CpuThrottling]  # node -> since it was started


class Canary:
    """A thread that only sleeps, and how late it woke."""

    def __init__(self) -> None:
        self._late_s = array("f")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sleep, daemon=True)

    def start(self) -> None:
        """Begin to sleep."""
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Lateness in wall milliseconds: p50, p99 and max; empty when it never slept."""
        self._over.set()
        self._thread.join()
        late_s = sorted(self._late_s)
        last = len(late_s) - 1
        return {name: round(1e3 * late_s[int(share * last)], 3) for name, share in SHARES.items()} if late_s else {}

    def _sleep(self) -> None:
        reduce_wakeup_latency()
        while not self._over.is_set():
            wanted = time.monotonic() + NAP_S
            time.sleep(NAP_S)
            self._late_s.append(time.monotonic() - wanted)


@dataclass
class Evidence:
    """Looks at the host from `start` to `stop`."""

    counters: Callable[[], Counters]  # of containers that still run
    canary: Canary = field(default_factory=Canary)
    _times: CpuTimes | None = None
    _stalled_s: dict[str, float] = field(default_factory=dict)
    _started: float = 0.0
    _first: dict[str, CpuThrottling] = field(default_factory=dict)
    _last: dict[str, CpuThrottling] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _looking: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        self._first = self._last = dict(self.counters())
        self._times, self._stalled_s, self._started = cpu_times(), stalled_s(), time.monotonic()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()
        self.canary.start()

    def stop(self) -> dict[str, Any]:
        """What was seen of the host: busy and stolen share of its cores, pressure, the canary's lateness."""
        self._over.set()
        if self._looking is None:  # never started
            return {}
        self._looking.join()
        elapsed_s, after = time.monotonic() - self._started, cpu_times()
        return {
            "cpu_busy": busy_share(self._times, after),
            "cpu_steal": stolen_share(self._times, after),
            "pressure": {
                name: round((total - self._stalled_s.get(name, total)) / elapsed_s, 4)
                for name, total in stalled_s().items()
            },
            "canary_late_ms": self.canary.stop(),
        }

    @property
    def throttling(self) -> dict[str, CpuThrottling]:
        """By how much each container's counters have grown; call it after `stop`."""
        return {node: _grown(first, self._last[node]) for node, first in self._first.items()}

    def _look(self) -> None:
        """Keep the last that was seen of every container."""
        while True:
            started = time.monotonic()
            self._last = self._last | dict(self.counters())
            took_s = time.monotonic() - started
            if self._over.wait(max(LOOK_S, took_s / LOOK_SHARE)):
                return


def _grown(before: CpuThrottling, after: CpuThrottling) -> CpuThrottling:
    return CpuThrottling(
        periods=after.periods - before.periods,
        throttled_periods=after.throttled_periods - before.throttled_periods,
        throttled_s=round(after.throttled_s - before.throttled_s, 6),
    )
