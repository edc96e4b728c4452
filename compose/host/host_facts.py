"""Facts about this host: cores, processor and memory, and how busy its cores are."""

import os
import platform
from pathlib import Path
from typing import NamedTuple

_CPU_STAT_FILE, _PRESSURE_FOLDER = Path("/proc/stat"), Path("/proc/pressure")
_IDLE_COLUMNS, _STEAL_COLUMN = (3, 4), 7  # idle and iowait; time that the hypervisor gave to other guests
UNPRIVILEGED_USER = "10001:10001"  # uid:gid of containers when this process belongs to root


class CpuTimes(NamedTuple):
    """CPU time of all cores together since boot, in ticks."""

    idle: int
    total: int
    steal: int = 0


def read_cpu_times() -> CpuTimes | None:
    """Read the CPU times of all cores from the kernel.

    The result is None on systems other than Linux.
    """
    if not _CPU_STAT_FILE.exists():
        return None
    ticks = [int(field) for field in _CPU_STAT_FILE.read_text().splitlines()[0].split()[1:9]]
    return CpuTimes(sum(ticks[index] for index in _IDLE_COLUMNS), sum(ticks), ticks[_STEAL_COLUMN])


def cpu_busy_share(times_before: CpuTimes | None, times_after: CpuTimes | None) -> float | None:
    """Return the share of the host's CPU time that was busy between two readings.

    The CPU time may have been used by any process.
    """
    if times_before is None or times_after is None or times_after.total == times_before.total:
        return None
    return round(1 - (times_after.idle - times_before.idle) / (times_after.total - times_before.total), 4)


def cpu_stolen_share(times_before: CpuTimes | None, times_after: CpuTimes | None) -> float | None:
    """Return the share of the host's CPU time that the hypervisor gave to other guests.

    The share is computed from two readings of the CPU times.
    """
    if times_before is None or times_after is None or times_after.total == times_before.total:
        return None
    return round((times_after.steal - times_before.steal) / (times_after.total - times_before.total), 4)


def read_stall_s_by_resource() -> dict[str, float]:
    """Return for how many seconds since boot tasks have waited for each resource.

    The result maps resource (cpu, memory, io) -> seconds. Empty if the kernel does not record pressure.
    """
    if not _PRESSURE_FOLDER.exists():
        return {}
    return {path.name: _read_total_stall_s(path) for path in sorted(_PRESSURE_FOLDER.iterdir())}


def _read_total_stall_s(pressure_file: Path) -> float:
    """Return the total waiting time of tasks in seconds, read from a pressure file of the kernel.

    It is computed from a line such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234` (in µs).
    """
    try:
        lines = pressure_file.read_text().splitlines()
    except OSError:  # recording of pressure is turned off in the kernel
        return 0.0
    return next((int(line.rpartition("=")[2]) / 1e6 for line in lines if line.startswith("some")), 0.0)


def available_core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def processor_model() -> str:
    """Return the model name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def host_memory_bytes() -> int:
    """Return the memory of the whole host in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def user_cache_folder() -> Path:
    """Return the folder for files of Ensayo that can be made again, such as measurements of this host."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ensayo"


def container_user() -> str:
    """Return uid:gid of processes in containers: those of this process, or those of an unprivileged user for root."""
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else UNPRIVILEGED_USER
