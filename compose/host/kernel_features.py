"""Kernel features that shape packets.

Each has a purpose, a consequence of its absence, and a way to install it. Runs and `ensayo doctor` test them with
`compose.shaping.mechanisms.FEATURE_TEST_COMMANDS`, in a container of the node image.
"""

import subprocess
from dataclasses import dataclass

from compose.shaping.mechanisms import KernelFeatureName

COMMAND_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class KernelFeature:
    """A kernel feature that shapes packets: its purpose, what is lost without it, and how to get it."""

    name: KernelFeatureName
    purpose: str  # what it is used for
    costs: str  # what is lost without it
    remedy: str  # how to get it


COST_WITHOUT_RATES = "links can't be shaped in containers: use --engine local"
KERNEL_FEATURES = (
    KernelFeature(
        "htb",
        "rates of links, of pairs of nodes and of shared links",
        COST_WITHOUT_RATES,
        "a kernel with sch_htb and cls_u32",
    ),
    KernelFeature(
        "ifb", "rates of downlinks, as incast needs", COST_WITHOUT_RATES, "a kernel with ifb, act_mirred and cls_u32"
    ),
    KernelFeature(
        "netem",
        "delay and loss by the kernel alone",
        "a delay line on NFQUEUE delays and loses packets: exact to 0.5 ms, for a quarter of a core per Gbit/s",
        "a kernel with sch_netem",
    ),
    KernelFeature("iptables", "partitions", "scenarios with partitions are rejected", "a kernel with nf_tables"),
    KernelFeature(
        "nfqueue",
        "delays and losses that events change, and all delays and losses without netem",
        "scenarios with such events are rejected; without netem, the transport delays messages and loses nothing",
        "a kernel with nfnetlink_queue, xt_NFQUEUE and nf_tables",
    ),
)


def read_command_output(*command: str) -> str | None:
    """Return the text that a command prints.

    Return None if it can't be started, fails or takes longer than `COMMAND_TIMEOUT_S`.
    """
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMMAND_TIMEOUT_S)  # noqa: S603 - our own
    except (OSError, subprocess.SubprocessError):
        return None
    return completed.stdout.strip()
