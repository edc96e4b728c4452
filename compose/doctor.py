"""What can this host emulate? One probe per question; what is missing is tried out, not looked up.

A kernel module may be built in, may be loaded on first use or may be forbidden: only doing it tells.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import DockerException

from compose.host import cores
from compose.marks import RUN_LABEL
from compose.shaping.rungs import TRIALS

IMAGE = "ensayo-node:cpu"
OLDEST_PYTHON = (3, 11)
OLDEST_COMPOSE = (2, 0)
FEWEST_CORES = 2
PROBE_S = 20.0

# What each rung of the ladder of link shaping needs, tried on a network namespace that nobody else sees.
RUNGS = {
    "htb": (
        "tc qdisc add dev lo root handle 1: htb",
        "rate limits",
        "links can't be shaped in containers: use --engine local",
    ),
    "ifb": ("ip link add ifb9 type ifb", "downlinks", "only uplinks can be shaped: a server's incast doesn't show"),
    "mirred": (
        (
            "tc qdisc add dev lo ingress && ip link add ifb9 type ifb && "
            "tc filter add dev lo parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb9"
        ),
        "downlinks",
        "only uplinks can be shaped: a server's incast doesn't show",
    ),
    "netem": (
        TRIALS["netem"],
        "delay and loss",
        "a process of ours delays and drops packets instead, where nfqueue works: a quarter of a core per Gbit/s",
    ),
    "nfqueue": (
        TRIALS["nfqueue"],
        "jitter; delay and loss without netem; partitions",
        "jitter, and delay without netem, only in the transport, which loses nothing; no partitions, nothing strict",
    ),
}


MODULES = {"htb": "sch_htb", "netem": "sch_netem", "nfqueue": "nfnetlink_queue, xt_NFQUEUE and nft_compat"}


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
    version = _said("docker", "compose", "version", "--short") or ""
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
    name = _said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
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


def rungs() -> Iterator[Finding]:
    """What the kernel can do to a link, tried in a scratch container, else in a namespace of our own."""
    run = _scratch()
    if run is None:
        costs = "which links the kernel can shape is unknown"
        yield Finding(
            "links", "not tried", ok=False, costs=costs, remedy="`make images`, or run as root with iproute2 installed"
        )
        return
    for name, (command, what, costs) in RUNGS.items():
        if run(command):
            yield Finding(name, f"{what}: yes")
        else:
            remedy = f"a kernel with {MODULES.get(name, name)}"
            yield Finding(
                name, f"{what}: no", ok=False, costs=costs, remedy=f"{remedy} (modules may be in linux-modules-extra)"
            )


PROBES: tuple[Callable[[], Finding], ...] = (python, host_cores, engine, compose, cgroup, gpu)

Trial = Callable[[str], bool]


def _scratch() -> Trial | None:
    """How to try a command on a network namespace that is thrown away."""
    if _said("docker", "image", "inspect", "--format", "{{.Id}}", IMAGE):
        isolated = ["docker", "run", "--rm", "--network", "none", "--label", f"{RUN_LABEL}=doctor", "--user", "0:0"]
        rights = ["--cap-drop", "ALL", "--cap-add", "NET_ADMIN", "--security-opt", "no-new-privileges", "--read-only"]
        return lambda command: _said(*isolated, *rights, "--entrypoint", "/bin/sh", IMAGE, "-c", command) is not None
    if os.geteuid() == 0 and shutil.which("tc") and shutil.which("unshare"):
        return lambda command: _said("unshare", "--net", "/bin/sh", "-c", command) is not None
    return None


def _engine_hands_out_gpus() -> bool:
    return "nvidia" in (_said("docker", "info", "--format", "{{json .Runtimes}}") or "")


def _said(*command: str) -> str | None:
    """What a command prints; None when it can't be run, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PROBE_S)  # noqa: S603 - our own
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
