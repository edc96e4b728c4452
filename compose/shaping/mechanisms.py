"""Which mechanism serves which property on this kernel? The first rung of the ladder that was tried and works."""

from collections.abc import Collection
from typing import Literal, TypeAlias

from compose.shaping.delays import netem_can
from compose.shaping.link_state import changes_of, delays_change, members
from services.cluster.events import NetworkPartition
from services.plan import Plan
from services.schema.component import FrozenRecord
from services.schema.errors import HostError

Capability: TypeAlias = Literal["htb", "ifb", "netem", "nfqueue", "iptables"]
Rung: TypeAlias = Literal["tc-htb", "netem", "nfqueue", "iptables", "transport", "none"]

# Each is tried for real in a network namespace that is thrown away: modules may be built in, loadable or forbidden.
TRIALS: dict[Capability, str] = {
    "htb": "tc qdisc add dev lo root handle 1: htb && tc qdisc del dev lo root",
    "ifb": (
        "tc qdisc add dev lo ingress && ip link add ifb9 type ifb && "
        "tc filter add dev lo parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb9"
    ),
    "netem": "tc qdisc add dev lo root netem delay 1ms",
    "iptables": "iptables-nft -A INPUT -s 192.0.2.1 -j DROP",
    "nfqueue": (
        "ip link set lo up && iptables-nft -A INPUT -s 192.0.2.1 -j NFQUEUE --queue-num 0 && "
        """echo '{"0": {"path": {"delay_s": 0, "jitters": [], "losses": []}}}' | python -m services.shaper.delay_line"""
    ),
}


class Rungs(FrozenRecord):
    """What serves each property of a trial; `none` where nothing is declared, or nothing can."""

    rate: Rung = "none"
    delay: Rung = "none"
    loss: Rung = "none"
    partition: Rung = "none"


def needs_kernel(plan: Plan) -> bool:
    """Whether anything is declared that a kernel would have to enforce."""
    return bool(_rates(plan) or plan.network.paths or any(event.is_link_event for event in plan.events))


def choose(plan: Plan, host: Collection[Capability]) -> Rungs:
    """The rungs of a trial on this kernel.

    Raises:
        HostError: nothing here can enforce what is declared, or `strict` refuses what could.
    """
    delay, loss = _delay_and_loss(plan, host)
    rungs = Rungs(rate=_rate(plan, host), delay=delay, loss=loss, partition=_partition(plan, host))
    if plan.strict and "transport" in (rungs.delay, rungs.loss):
        raise HostError(
            "strict: this kernel can't delay or lose packets (neither netem nor NFQUEUE works here), "
            "and the transport would have to pretend it; `ensayo doctor` tells what is missing"
        )
    return rungs


def _rate(plan: Plan, host: Collection[Capability]) -> Rung:
    if not _rates(plan):
        return "none"
    if missing := {"htb", "ifb"} - set(host):
        raise HostError(f"this kernel can't shape rates in containers ({', '.join(sorted(missing))} does not work)")
    return "tc-htb"


def _rates(plan: Plan) -> list[float]:
    """All rates that the plan limits something to."""
    declared = [rate for node in members(plan) for rate in (node.uplink_bps, node.downlink_bps)]
    changed = [rate for change in changes_of(plan) for rate in (change.uplink, change.downlink)]
    return [rate for rate in (*declared, *changed) if rate] + [pipe.rate_bps for pipe in plan.network.shared_links]


def _delay_and_loss(plan: Plan, host: Collection[Capability]) -> tuple[Rung, Rung]:
    """Both at once: whatever holds packets back may as well lose them. The transport loses nothing, and says so."""
    delayed = any(path.delay_s for path in plan.network.paths) or any(change.delay for change in changes_of(plan))
    lossy = any(path.losses for path in plan.network.paths) or any(change.loss for change in changes_of(plan))
    if not delayed and not lossy:
        return "none", "none"
    rung = _below_rates(plan, host)
    if rung == "transport" and delays_change(plan):
        raise HostError("events change delays or losses, which needs NFQUEUE, and that does not work on this kernel")
    if rung == "transport":
        return ("transport" if delayed else "none"), ("transport" if lossy else "none")
    return (rung if delayed else "none"), (rung if lossy else "none")


def _below_rates(plan: Plan, host: Collection[Capability]) -> Rung:
    if {"netem", "htb", "ifb"} <= set(host) and not delays_change(plan) and all(map(netem_can, plan.network.paths)):
        return "netem"
    return "nfqueue" if "nfqueue" in host else "transport"


def _partition(plan: Plan, host: Collection[Capability]) -> Rung:
    if not any(isinstance(event.change, NetworkPartition) for event in plan.events):
        return "none"
    if "iptables" not in host:
        raise HostError("a partition needs the kernel's packet filter, and iptables does not work here")
    return "iptables"
