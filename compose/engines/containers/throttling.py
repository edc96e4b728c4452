"""Counters of CPU throttling: how often the kernel stopped a container because its CPU quota was used up.

The counters are in the container's control group. They are read from its file where that is possible, which costs
nothing, else through Docker's API, which takes a request and supports both versions of control groups. A container that
has ended has no counters.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker.errors import DockerException
from docker.models.containers import Container

from services.plan.trial_outcome import CpuThrottleCounts

_CGROUP_MOUNT = Path("/sys/fs/cgroup")
# Folders of a container's control group, version 1 and 2, with the cgroup drivers `cgroupfs` and `systemd`.
_CGROUP_FOLDERS = ("cpu/docker/{}", "cpu/system.slice/docker-{}.scope", "docker/{}", "system.slice/docker-{}.scope")


def read_cpu_throttling(container: Container) -> CpuThrottleCounts | None:
    """Return the CPU throttling counters of a container since its start.

    The result is None if the counters can't be read.
    """
    container_id = str(container.id)
    for folder in _CGROUP_FOLDERS:
        with suppress(OSError):
            return parse_cpu_stat((_CGROUP_MOUNT / folder.format(container_id) / "cpu.stat").read_text())
    with suppress(DockerException, KeyError, OSError):  # requests raises its own subclasses of OSError
        stats = container.stats(stream=False, one_shot=True)
        return _throttling_from_docker_stats(stats["cpu_stats"]["throttling_data"]) if stats["pids_stats"] else None
    return None


def parse_cpu_stat(cpu_stat_text: str) -> CpuThrottleCounts:
    """Parse the counters of CPU throttling in the content of a control group's file `cpu.stat`.

    The throttled time is `throttled_time` in nanoseconds in version 1, `throttled_usec` in microseconds in version 2.
    """
    lines = (line.partition(" ") for line in cpu_stat_text.splitlines())
    stat = {key: int(value) for key, _, value in lines}
    nanoseconds = stat.get("throttled_time", 1000 * stat.get("throttled_usec", 0))
    return CpuThrottleCounts(
        periods=stat.get("nr_periods", 0), throttled_periods=stat.get("nr_throttled", 0), throttled_s=nanoseconds / 1e9
    )


def _throttling_from_docker_stats(throttling_data: Mapping[str, Any]) -> CpuThrottleCounts:
    """Convert throttling statistics of Docker's API to throttling counters.

    Times in Docker's API are in nanoseconds.
    """
    return CpuThrottleCounts(
        periods=throttling_data["periods"],
        throttled_periods=throttling_data["throttled_periods"],
        throttled_s=throttling_data["throttled_time"] / 1e9,
    )
