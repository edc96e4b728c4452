"""What can this kernel do to packets? Each operation is tried for real, in a network namespace that is thrown away.

A kernel module may be built in, may be loaded on first use or may be forbidden: only doing it tells.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from compose.marks import RUN_LABEL

IMAGE = "ensayo-node:cpu"
PROBE_S = 20.0
TOOLS = ("tc", "ip", "iptables", "unshare")

Try = Callable[[str], bool]  # a shell command -> whether it worked


@dataclass(frozen=True)
class Feature:
    """One operation that a rung of the ladder needs."""

    name: str
    command: str
    what: str  # that it serves
    costs: str  # to do without
    remedy: str


INCAST = "only uplinks can be shaped: a server's incast doesn't show"
FEATURES = (
    Feature(
        "htb",
        "tc qdisc add dev lo root handle 1: htb",
        "rates of links",
        "links can't be shaped in containers: use --engine local",
        "a kernel with sch_htb",
    ),
    Feature("ifb", "ip link add ifb9 type ifb", "rates of downlinks", INCAST, "a kernel with ifb"),
    Feature(
        "mirred",
        "tc qdisc add dev lo ingress && ip link add ifb9 type ifb && "
        "tc filter add dev lo parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb9",
        "rates of downlinks",
        INCAST,
        "a kernel with act_mirred and cls_u32",
    ),
    Feature(
        "u32 hash",
        "tc qdisc add dev lo root handle 1: htb && "
        "tc filter add dev lo parent 1: prio 1 handle 2: protocol ip u32 divisor 256",
        "limits of pairs of nodes",
        "limits of pairs and of racks are not enforced",
        "a kernel with cls_u32",
    ),
    Feature(
        "netem",
        "tc qdisc add dev lo root netem delay 1ms",
        "delay and loss by the kernel alone",
        "delay and loss by a delay line on NFQUEUE: exact to 0.5 ms, a quarter of a core per Gbit/s",
        "a kernel with sch_netem",
    ),
    Feature(
        "nfqueue",
        "XTABLES_LOCKFILE=/dev/null iptables -A INPUT -s 192.0.2.1 -j NFQUEUE --queue-num 0 --queue-bypass",
        "delay and loss where there is no netem",
        "without netem either, messages are delayed by the transport, and nothing is lost",
        "iptables, and a kernel with nfnetlink_queue and xt_NFQUEUE",
    ),
)


def scratch() -> Try | None:
    """How to try a command on a network namespace that is thrown away; None when nobody here may.

    Root has namespaces of its own; others ask an engine for a container, which needs the node image.
    """
    if os.geteuid() == 0 and all(shutil.which(tool) for tool in TOOLS):
        return lambda command: said("unshare", "--net", "/bin/sh", "-c", command) is not None
    if said("docker", "image", "inspect", "--format", "{{.Id}}", IMAGE):
        isolated = ["docker", "run", "--rm", "--network", "none", "--label", f"{RUN_LABEL}=doctor", "--user", "0:0"]
        rights = ["--cap-drop", "ALL", "--cap-add", "NET_ADMIN", "--security-opt", "no-new-privileges", "--read-only"]
        return lambda command: said(*isolated, *rights, "--entrypoint", "/bin/sh", IMAGE, "-c", command) is not None
    return None


def said(*command: str) -> str | None:
    """What a command prints; None when it can't be run, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PROBE_S)  # noqa: S603 - our own
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
