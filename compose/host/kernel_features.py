"""What does a kernel serve that can do this to packets, and what does it cost when it can't?

Runs try it out before they begin, and so does the doctor: `compose.shaping.mechanisms.TRIALS`, in the image of nodes.
"""

import subprocess
from dataclasses import dataclass

from compose.shaping.mechanisms import Capability

PROBE_S = 20.0


@dataclass(frozen=True)
class Feature:
    """One capability of a kernel, in words."""

    name: Capability
    what: str  # that it serves
    costs: str  # to do without
    remedy: str


NO_RATES = "links can't be shaped in containers: use --engine local"
FEATURES = (
    Feature("htb", "rates of links, of pairs and of what nodes share", NO_RATES, "a kernel with sch_htb and cls_u32"),
    Feature("ifb", "rates of downlinks, and so incast", NO_RATES, "a kernel with ifb, act_mirred and cls_u32"),
    Feature(
        "netem",
        "delay and loss by the kernel alone",
        "delay and loss by a delay line on NFQUEUE: exact to 0.5 ms, a quarter of a core per Gbit/s",
        "a kernel with sch_netem",
    ),
    Feature("iptables", "partitions", "partitions are refused", "a kernel with nf_tables"),
    Feature(
        "nfqueue",
        "delays that events change, and delay and loss where there is no netem",
        "such events are refused; without netem, the transport delays messages and loses nothing",
        "a kernel with nfnetlink_queue, xt_NFQUEUE and nf_tables",
    ),
)


def said(*command: str) -> str | None:
    """What a command prints; None when it can't be run, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PROBE_S)  # noqa: S603 - our own
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
