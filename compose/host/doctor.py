"""Checks of `ensayo doctor`: which features this host supports and which are missing.

The checks also show how to install missing features. Kernel features are tested by using them, because a kernel module
may be built in, loaded on first use or forbidden.
"""

import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import docker
from docker.errors import DockerException

from compose.calibration.capacity import find_host_capacity as known_capacity
from compose.engines.containers.engine import DockerEngine
from compose.host.gpu_checks import check_gpus
from compose.host.host_check_result import HostCheckResult
from compose.host.host_facts import available_core_count
from compose.host.host_metrics import WakeUpDelayMeter
from compose.host.kernel_features import KERNEL_FEATURES, KernelFeature, read_command_output
from compose.runs.labels import RUN_LABEL
from compose.runs.trials.node_runner import TrialFailed
from services.schema.errors import HostError

MIN_PYTHON_VERSION = (3, 11)
MIN_COMPOSE_VERSION = (2, 0)
MIN_CORES = 2
TIMER_TEST_S, MAX_LATENESS_MS = 0.5, 1.0
DOCKER_INFO_LIMITS = {  # key of `docker info` -> limit
    "CpuCfsQuota": "CPU quotas",
    "MemoryLimit": "memory limits",
    "SwapLimit": "swap limits",
}
MISSING_LIMIT_COSTS = {  # limit -> what happens without it
    "CPU quotas": "workers with less than one core run as fast as the host",
    "memory limits": "a node may use the memory of other nodes",
    "swap limits": "a node that exceeds its memory swaps instead of ending",
}


def check_host() -> Iterator[HostCheckResult]:
    """Run all checks of this host, and yield each result at once.

    Results are not collected first, since some checks take a second.
    """
    for check in HOST_CHECKS:
        yield check()
    yield from check_gpus()
    yield from check_kernel_features()


def host_checks_as_json() -> str:
    """Return the results of all checks of this host as a JSON list of objects, for programs."""
    return json.dumps([asdict(finding) for finding in check_host()], indent=2)


def check_python_version() -> HostCheckResult:
    """Check that the Python interpreter is new enough."""
    version = platform.python_version()
    if sys.version_info >= MIN_PYTHON_VERSION:
        return HostCheckResult("python", version)
    remedy = "use Python 3.11 or newer, as in make PYTHON=python3.11 ..."
    return HostCheckResult("python", version, ok=False, costs="Ensayo does not start", remedy=remedy)


def check_core_count() -> HostCheckResult:
    """Check that there are enough cores for several nodes."""
    count = available_core_count()
    if count >= MIN_CORES:
        return HostCheckResult("cores", f"{count}")
    costs = "nodes wait while other nodes compute, so workers with a declared speed are late"
    return HostCheckResult(
        "cores", f"{count}", ok=False, costs=costs, remedy="declare slower workers or a larger dilation"
    )


def check_docker_engine() -> HostCheckResult:
    """Check that a Docker engine runs and answers."""
    try:
        with closing(docker.from_env(timeout=5)) as client:
            return HostCheckResult("docker", f"engine {client.version()['Version']}")
    except DockerException as error:
        reason = str(error).splitlines()[0][:120]
        costs = "there are no containers: nodes run as local processes, and the transport shapes the links"
        remedy = "install and start Docker Engine"
        return HostCheckResult("docker", f"no Docker engine answers ({reason})", ok=False, costs=costs, remedy=remedy)


def check_docker_compose() -> HostCheckResult:
    """Check that Docker Compose is installed as a plug-in and new enough."""
    version = read_command_output("docker", "compose", "version", "--short") or ""
    parts = tuple(int(part) for part in version.lstrip("v").split("-")[0].split(".") if part.isdigit())
    if parts >= MIN_COMPOSE_VERSION:
        return HostCheckResult("compose", version)
    costs, remedy = "--engine docker is not available", "install the docker-compose-plugin package"
    return HostCheckResult("compose", version or "no `docker compose`", ok=False, costs=costs, remedy=remedy)


def check_cgroup_version() -> HostCheckResult:
    """Check which version of control groups this host has.

    Control groups limit the CPU and memory of nodes.
    """
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return HostCheckResult("cgroup", "v2")
    if Path("/sys/fs/cgroup/cpu").exists():
        return HostCheckResult("cgroup", "v1")
    costs = "CPU shares and memory limits of nodes have no effect"
    return HostCheckResult("cgroup", "none", ok=False, costs=costs, remedy="use a Linux host with cgroups mounted")


def check_cpu_and_memory_limits() -> HostCheckResult:
    """Check that the Docker engine can limit the CPU, memory and swap of containers."""
    docker_info = json.loads(read_command_output("docker", "info", "--format", "{{json .}}") or "{}")
    if not docker_info:
        costs, remedy = MISSING_LIMIT_COSTS["CPU quotas"], "install and start Docker Engine"
        return HostCheckResult("limits", "no Docker engine answers", ok=False, costs=costs, remedy=remedy)
    missing = [limit for key, limit in DOCKER_INFO_LIMITS.items() if not docker_info.get(key)]
    if not missing:
        return HostCheckResult("limits", "CPU quotas, memory and swap")
    costs = "nodes get more than declared: " + "; ".join(MISSING_LIMIT_COSTS[limit] for limit in missing)
    remedy = "use a kernel with CONFIG_CFS_BANDWIDTH and CONFIG_MEMCG, and swapaccount=1 on its command line"
    return HostCheckResult("limits", f"no {' and no '.join(missing)}", ok=False, costs=costs, remedy=remedy)


def check_wake_up_delay() -> HostCheckResult:
    """Check how late a thread wakes up from a sleep of one millisecond."""
    canary = WakeUpDelayMeter()
    canary.start()
    time.sleep(TIMER_TEST_S)
    late_ms = canary.stop()
    found = f"a sleep ends {late_ms['p50']:.2g} ms late at the median, {late_ms['p99']:.2g} ms at the 99th percentile"
    if late_ms["p99"] <= MAX_LATENESS_MS:
        return HostCheckResult("timers", found)
    costs = "workers with a declared speed are late, and delays take this much longer"
    remedy = "end other programs, declare a larger dilation, or use a kernel with high-resolution timers"
    return HostCheckResult("timers", found, ok=False, costs=costs, remedy=remedy)


def check_link_calibration() -> HostCheckResult:
    """Report the link rates between containers that `ensayo calibrate` has measured on this host.

    They are taken from the last calibration, since a measurement takes a while.
    """
    costs = "Ensayo assumes a low capacity, so it may ask for a larger dilation than this host needs"
    remedy = "run `ensayo calibrate`, which measures the capacity"
    try:
        known = known_capacity(DockerEngine())
    except (DockerException, HostError):
        return HostCheckResult("capacity", "no Docker engine answers", ok=False, costs=costs, remedy=remedy)
    rates = f"veth links up to {known.shaped_bps / 1e9:g} Gbit/s, {known.total_bps / 1e9:.3g} Gbit/s in total"
    if known.calibrated:
        return HostCheckResult("capacity", f"{rates}, measured by `ensayo calibrate` on {known.calibrated}")
    found = f"not measured ({known.note}); assumed: {rates}"
    return HostCheckResult("capacity", found, ok=False, costs=costs, remedy=remedy)


def check_kernel_features() -> Iterator[HostCheckResult]:
    """Test each kernel feature that shapes packets, and yield one result per feature.

    The tests run in a temporary container.
    """
    try:
        working_features = DockerEngine().find_kernel_features({RUN_LABEL: "doctor"})
    except (DockerException, HostError, TrialFailed):
        costs = "it is unknown which links the kernel can shape in containers"
        remedy = "start Docker Engine, and build the node image with `ensayo images`"
        yield HostCheckResult("links", "not tested", ok=False, costs=costs, remedy=remedy)
        return
    yield from (_kernel_feature_result(feature, works=feature.name in working_features) for feature in KERNEL_FEATURES)


def _kernel_feature_result(feature: KernelFeature, *, works: bool) -> HostCheckResult:
    if works:
        return HostCheckResult(feature.name, f"{feature.purpose}: yes")
    remedy = f"use {feature.remedy} (modules may be in a package of extra modules)"
    return HostCheckResult(feature.name, f"{feature.purpose}: no", ok=False, costs=feature.costs, remedy=remedy)


HOST_CHECKS: tuple[Callable[[], HostCheckResult], ...] = (
    *(check_python_version, check_core_count, check_wake_up_delay),
    *(check_docker_engine, check_docker_compose, check_cgroup_version, check_cpu_and_memory_limits),
    check_link_calibration,
)
