"""What is this host, and how busy is it?"""

import os
import platform
from pathlib import Path
from typing import NamedTuple

_STAT, _PRESSURE = Path("/proc/stat"), Path("/proc/pressure")
_IDLE, _STEAL = (3, 4), 7  # idle and iowait; what a hypervisor gave to others


class CpuTimes(NamedTuple):
    """Ticks of all cores together since boot."""

    idle: int
    total: int
    steal: int = 0


def cpu_times() -> CpuTimes | None:
    """What the kernel has counted so far; None where it does not say (not Linux)."""
    if not _STAT.exists():
        return None
    ticks = [int(field) for field in _STAT.read_text().splitlines()[0].split()[1:9]]
    return CpuTimes(sum(ticks[index] for index in _IDLE), sum(ticks), ticks[_STEAL])


def busy_share(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Share of the host's cores that was busy in between, everybody's work included."""
    if before is None or after is None or after.total == before.total:
        return None
    return round(1 - (after.idle - before.idle) / (after.total - before.total), 4)


def stolen_share(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Share of the host's cores that its hypervisor gave to somebody else in between."""
    if before is None or after is None or after.total == before.total:
        return None
    return round((after.steal - before.steal) / (after.total - before.total), 4)


def stalled_s() -> dict[str, float]:
    """Seconds since boot in which some task waited for cpu, memory or io; empty where the kernel does not count."""
    if not _PRESSURE.exists():
        return {}
    return {path.name: _stalled_s(path) for path in sorted(_PRESSURE.iterdir())}


def _stalled_s(path: Path) -> float:
    """From a line such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`, in microseconds."""
    try:
        lines = path.read_text().splitlines()
    except OSError:  # the kernel was told not to count
        return 0.0
    return next((int(line.rpartition("=")[2]) / 1e6 for line in lines if line.startswith("some")), 0.0)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def processor() -> str:
    """The model of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def memory_bytes() -> int:
    """Of the whole host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
