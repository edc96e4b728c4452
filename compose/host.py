"""How busy is this host?"""

import os
from pathlib import Path
from typing import NamedTuple

_STAT = Path("/proc/stat")
_IDLE = (3, 4)  # idle, iowait


class CpuTimes(NamedTuple):
    """Ticks of all cores together since boot."""

    idle: int
    total: int


def cpu_times() -> CpuTimes | None:
    """What the kernel has counted so far; None where it does not say (not Linux)."""
    if not _STAT.exists():
        return None
    ticks = [int(field) for field in _STAT.read_text().splitlines()[0].split()[1:9]]
    return CpuTimes(sum(ticks[index] for index in _IDLE), sum(ticks))


def busy_share(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Share of the host's cores that was busy in between, everybody's work included."""
    if before is None or after is None or after.total == before.total:
        return None
    return round(1 - (after.idle - before.idle) / (after.total - before.total), 4)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
