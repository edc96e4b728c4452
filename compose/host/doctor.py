"""What can this host emulate? One probe per question; what is missing is tried out, not looked up.

A kernel module may be built in, may be loaded on first use or may be forbidden: only doing it tells.
"""

import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import docker
from docker.errors import DockerException

from compose.calibration.capacity import load_capacity as known_capacity
from compose.engines.containers.engine import DockerEngine
from compose.host.host_facts import cores
from compose.host.host_metrics import Canary
from compose.host.kernel_features import FEATURES, Feature, said
from compose.runs.labels import RUN_LABEL
from compose.runs.supervisor import TrialFailed
from services.schema.errors import HostError

OLDEST_PYTHON = (3, 11)
OLDEST_COMPOSE = (2, 0)
FEWEST_CORES = 2
TIMER_S, LATEST_MS = 0.5, 1.0
LIMITS = {"CpuCfsQuota": "CPU quotas", "MemoryLimit": "memory limits", "SwapLimit": "swap limits"}  # of `docker info`
LIMIT_COSTS = {
    "CPU quotas": "devices that are slow by a share of a core are as fast as the host",
    "memory limits": "a node may take the memory of others",
    "swap limits": "a node swaps where it should end",
}


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

    topic: str
    found: str
    ok: bool = True
    costs: str = ""  # what can't be done without it
    remedy: str = ""  # how to get it

    def __str__(self) -> str:
        mark = "ok     " if self.ok else "missing"
        advice = "".join(f"\n{'':18}{line}" for line in (self.costs, self.remedy) if line)
        return f"{mark} {self.topic:<9} {self.found}{advice}"


def findings() -> Iterator[Finding]:
    """One answer after the other, since some take a second."""
    for probe in PROBES:
        yield probe()
    yield from rungs()


def as_json() -> str:
    """All findings for programs: a list of objects."""
    return json.dumps([asdict(finding) for finding in findings()], indent=2)


def python() -> Finding:
    """Is the interpreter new enough?"""
    version = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("python", version)
    return Finding("python", version, ok=False, costs="Ensayo does not start", remedy="make PYTHON=python3.11 ...")


def host_cores() -> Finding:
    """Do the nodes have room?"""
    count = cores()
    if count >= FEWEST_CORES:
        return Finding("cores", f"{count}")
    costs = "nodes wait for each other's mathematics: paced workers miss their deadlines"
    return Finding("cores", f"{count}", ok=False, costs=costs, remedy="declare slower workers, or raise dilation")


def engine() -> Finding:
    """Does a Docker engine answer?"""
    try:
        with closing(docker.from_env(timeout=5)) as client:
            return Finding("docker", f"engine {client.version()['Version']}")
    except DockerException as error:
        why = str(error).splitlines()[0][:120]
        costs = "no containers: nodes run as local processes, links are shaped in the transport"
        return Finding(
            "docker", f"no engine answers ({why})", ok=False, costs=costs, remedy="install and start Docker Engine"
        )


def compose() -> Finding:
    """Is Compose there, as the plug-in?"""
    version = said("docker", "compose", "version", "--short") or ""
    parts = tuple(int(part) for part in version.lstrip("v").split("-")[0].split(".") if part.isdigit())
    if parts >= OLDEST_COMPOSE:
        return Finding("compose", version)
    remedy = "install the docker-compose-plugin package"
    return Finding(
        "compose", version or "no `docker compose`", ok=False, costs="engine docker can't run", remedy=remedy
    )


def cgroup() -> Finding:
    """Which version limits the nodes' CPU and memory?"""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return Finding("cgroup", "v2")
    if Path("/sys/fs/cgroup/cpu").exists():
        return Finding("cgroup", "v1")
    costs = "CPU shares and memory limits of nodes have no effect"
    return Finding("cgroup", "none", ok=False, costs=costs, remedy="a Linux host with cgroups mounted")


def gpu() -> Finding:
    """Is there a GPU, and can containers get it?"""
    name = said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if not name:
        costs = "device cuda can't be asked for; paced workers on the CPU emulate any accelerator's speed"
        return Finding(
            "gpu", "none", ok=False, costs=costs, remedy="an NVIDIA driver and, for containers, its container toolkit"
        )
    if _engine_hands_out_gpus():
        return Finding("gpu", f"{name.splitlines()[0]}, for processes and containers")
    costs = "containers don't get it; engine local does"
    return Finding(
        "gpu",
        f"{name.splitlines()[0]}, for processes",
        ok=False,
        costs=costs,
        remedy="install the NVIDIA container toolkit",
    )


def limits() -> Finding:
    """Does the engine hold containers to their share of a core, and to their memory without swap?"""
    told = json.loads(said("docker", "info", "--format", "{{json .}}") or "{}")
    if not told:
        costs = "nodes that are slow by a CPU quota are as fast as the host"
        return Finding("limits", "no engine to ask", ok=False, costs=costs, remedy="install and start Docker Engine")
    lacking = [what for key, what in LIMITS.items() if not told.get(key)]
    if not lacking:
        return Finding("limits", "CPU quotas, memory and swap")
    costs = "nodes get more than declared: " + "; ".join(LIMIT_COSTS[what] for what in lacking)
    remedy = "a kernel with CONFIG_CFS_BANDWIDTH and CONFIG_MEMCG, and swapaccount=1 on its command line"
    return Finding("limits", f"without {' and '.join(lacking)}", ok=False, costs=costs, remedy=remedy)


def timers() -> Finding:
    """How late does a thread wake that sleeps for a millisecond?"""
    canary = Canary()
    canary.start()
    time.sleep(TIMER_S)
    late = canary.stop()
    found = f"a sleep ends {late['p50']:.2g} ms late at the median, {late['p99']:.2g} ms at the 99th percentile"
    if late["p99"] <= LATEST_MS:
        return Finding("timers", found)
    costs = "paced workers miss deadlines and delays are too long by as much"
    remedy = "leave the host to itself, raise dilation, or take a kernel with high-resolution timers"
    return Finding("timers", found, ok=False, costs=costs, remedy=remedy)


def capacity() -> Finding:
    """How much do the veth pairs of this host's containers carry? As calibrated, since measuring takes a while."""
    costs, remedy = "what fits on this host is assumed, and assumed low", "run `ensayo calibrate`, which measures it"
    try:
        found = known_capacity(DockerEngine())
    except (DockerException, HostError):
        return Finding("capacity", "no engine to carry anything", ok=False, costs=costs, remedy=remedy)
    carried = f"veth links up to {found.shaped_bps / 1e9:g} Gbit/s, {found.total_bps / 1e9:.3g} Gbit/s in all"
    if found.calibrated:
        return Finding("capacity", f"{carried}; `ensayo calibrate` measured it on {found.calibrated}")
    told = f"none was measured ({found.note}); assumed: {carried}"
    return Finding("capacity", told, ok=False, costs=costs, remedy=remedy)


def rungs() -> Iterator[Finding]:
    """What the kernel can do to packets: the trials of a run, where nobody else sees them."""
    try:
        works = DockerEngine().kernel_capabilities({RUN_LABEL: "doctor"})
    except (DockerException, TrialFailed):
        costs = "which links the kernel can shape in containers is unknown"
        yield Finding("links", "not tried", ok=False, costs=costs, remedy="an engine that answers, and `make images`")
        return
    yield from (_of(feature, works=feature.name in works) for feature in FEATURES)


def _of(feature: Feature, *, works: bool) -> Finding:
    if works:
        return Finding(feature.name, f"{feature.what}: yes")
    remedy = f"{feature.remedy} (modules may be in a package of extra modules)"
    return Finding(feature.name, f"{feature.what}: no", ok=False, costs=feature.costs, remedy=remedy)


PROBES: tuple[Callable[[], Finding], ...] = (
    *(python, host_cores, timers),
    *(engine, compose, cgroup, limits),
    *(gpu, capacity),
)


def _engine_hands_out_gpus() -> bool:
    return "nvidia" in (said("docker", "info", "--format", "{{json .Runtimes}}") or "")
