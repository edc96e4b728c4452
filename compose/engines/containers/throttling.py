"""How often has the kernel held a container back for its CPU quota?

Its control group tells: the file where it can be read, which costs nothing, else the engine, which takes a request and
knows both versions of control groups. A container that has ended has no counters.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker.errors import DockerException
from docker.models.containers import Container

from compose.engines.base import Throttling

_MOUNT = Path("/sys/fs/cgroup")
# Version 1 and 2, as the drivers cgroupfs and systemd name them.
_GROUPS = ("cpu/docker/{}", "cpu/system.slice/docker-{}.scope", "docker/{}", "system.slice/docker-{}.scope")


def throttling(container: Container) -> Throttling | None:
    """A container's counters since it was started; None when it does not run or nobody tells."""
    identifier = str(container.id)
    for group in _GROUPS:
        with suppress(OSError):
            return parse((_MOUNT / group.format(identifier) / "cpu.stat").read_text())
    with suppress(DockerException, KeyError, OSError):  # requests raises its own kind of OSError
        told = container.stats(stream=False, one_shot=True)
        return _told(told["cpu_stats"]["throttling_data"]) if told["pids_stats"] else None
    return None


def parse(text: str) -> Throttling:
    """The content of `cpu.stat`: nanoseconds in `throttled_time` (version 1), microseconds in `throttled_usec` (2)."""
    counted = {key: int(value) for key, _, value in (line.partition(" ") for line in text.splitlines())}
    nanoseconds = counted.get("throttled_time", 1000 * counted.get("throttled_usec", 0))
    return Throttling(
        periods=counted.get("nr_periods", 0),
        throttled_periods=counted.get("nr_throttled", 0),
        throttled_s=nanoseconds / 1e9,
    )


def _told(data: Mapping[str, Any]) -> Throttling:
    return Throttling(
        periods=data["periods"], throttled_periods=data["throttled_periods"], throttled_s=data["throttled_time"] / 1e9
    )
