"""Choice of the shaping mechanism that enforces each link property on this kernel.

Examples of mechanisms are htb, netem and NFQUEUE. Each property has a list of mechanisms in order of preference. The
first one whose kernel features work is chosen.
"""

from collections.abc import Collection
from typing import Literal, TypeAlias

from compose.shaping.delays import is_supported_by_netem
from compose.shaping.link_state import data_network_nodes, has_delay_or_loss_changes, link_changes
from services.cluster.events import NetworkPartition
from services.plan import Plan
from services.schema.component import FrozenRecord
from services.schema.errors import HostError

KernelFeatureName: TypeAlias = Literal["htb", "ifb", "netem", "nfqueue", "iptables"]
MechanismName: TypeAlias = Literal["tc-htb", "netem", "nfqueue", "iptables", "transport", "none"]

# Each command is executed in a temporary network namespace, since a module may be built in, loadable or forbidden.
FEATURE_TEST_COMMANDS: dict[KernelFeatureName, str] = {
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


class ChosenMechanisms(FrozenRecord):
    """Shaping mechanisms, such as tc-htb or netem, chosen for a trial's links.

    There is one each for rates, delays, losses and partitions. A property is `none` if the scenario does not declare it
    or if no mechanism can enforce it.
    """

    rate: MechanismName = "none"
    delay: MechanismName = "none"
    loss: MechanismName = "none"
    partition: MechanismName = "none"


def needs_kernel_shaping(plan: Plan) -> bool:
    """Return whether the trial plan requires that the kernel shapes links.

    This is so if it declares a rate, delay, loss or link event that the kernel has to enforce.
    """
    return bool(_declared_rates_bps(plan) or plan.network.paths or any(event.is_link_event for event in plan.events))


def choose_shaping_mechanisms(plan: Plan, kernel_features: Collection[KernelFeatureName]) -> ChosenMechanisms:
    """Choose the shaping mechanism for each link property of a trial on this kernel.

    Examples of mechanisms are tc-htb, netem and NFQUEUE.

    Args:
        plan: plan of the trial.
        kernel_features: those that have been tested and work.

    Raises:
        HostError: no mechanism can enforce a declared property, or only one that `strict` forbids.
    """
    delay, loss = _choose_delay_loss_mechanisms(plan, kernel_features)
    mechanisms = ChosenMechanisms(
        rate=_rate_mechanism(plan, kernel_features),
        delay=delay,
        loss=loss,
        partition=_choose_partition_mechanism(plan, kernel_features),
    )
    if plan.strict and "transport" in (mechanisms.delay, mechanisms.loss):
        raise HostError(
            "strict: this kernel can't delay or lose packets, since neither netem nor NFQUEUE works. Only the "
            "transport could emulate delays, which strict forbids. Write strict: false, or install the kernel modules "
            "that `ensayo doctor` lists as missing"
        )
    return mechanisms


def _rate_mechanism(plan: Plan, kernel_features: Collection[KernelFeatureName]) -> MechanismName:
    if not _declared_rates_bps(plan):
        return "none"
    if missing := {"htb", "ifb"} - set(kernel_features):
        raise HostError(
            f"this kernel can't shape link rates in containers: {', '.join(sorted(missing))} does not work. Use "
            "--engine local, or install the kernel modules that `ensayo doctor` lists as missing"
        )
    return "tc-htb"


def _declared_rates_bps(plan: Plan) -> list[float]:
    """Return all rates to which a trial plan limits links.

    Rates set by events are included. Rates are in bit/s of virtual time.
    """
    declared = [rate for node in data_network_nodes(plan) for rate in (node.uplink_bps, node.downlink_bps)]
    changed = [rate for change in link_changes(plan) for rate in (change.uplink, change.downlink)]
    return [rate for rate in (*declared, *changed) if rate] + [link.rate_bps for link in plan.network.shared_links]


def _choose_delay_loss_mechanisms(
    plan: Plan, kernel_features: Collection[KernelFeatureName]
) -> tuple[MechanismName, MechanismName]:
    """Return two shaping mechanisms: the one that delays packets and the one that loses packets.

    The same mechanism serves both. The transport delays messages but loses nothing, which its records state.
    """
    delayed = any(path.delay_s for path in plan.network.paths) or any(change.delay for change in link_changes(plan))
    lossy = any(path.losses for path in plan.network.paths) or any(change.loss for change in link_changes(plan))
    if not delayed and not lossy:
        return "none", "none"
    mechanism = _packet_delay_mechanism(plan, kernel_features)
    if mechanism == "transport" and has_delay_or_loss_changes(plan):
        raise HostError(
            "events change delays or losses. They need NFQUEUE, which does not work on this kernel. Remove these "
            "events, or install the kernel modules that `ensayo doctor` lists as missing"
        )
    return (mechanism if delayed else "none"), (mechanism if lossy else "none")


def _packet_delay_mechanism(plan: Plan, kernel_features: Collection[KernelFeatureName]) -> MechanismName:
    """Return the first mechanism that can delay packets of all network paths.

    The order is netem, NFQUEUE, then Ensayo's transport.
    """
    has_netem = {"netem", "htb", "ifb"} <= set(kernel_features)
    paths_are_supported = all(map(is_supported_by_netem, plan.network.paths))
    if has_netem and paths_are_supported and not has_delay_or_loss_changes(plan):
        return "netem"
    return "nfqueue" if "nfqueue" in kernel_features else "transport"


def _choose_partition_mechanism(plan: Plan, kernel_features: Collection[KernelFeatureName]) -> MechanismName:
    if not any(isinstance(event.change, NetworkPartition) for event in plan.events):
        return "none"
    if "iptables" not in kernel_features:
        raise HostError(
            "events: a partition needs the kernel's packet filter, but iptables does not work on this host. Remove the "
            "partition, or install the kernel modules that `ensayo doctor` lists as missing"
        )
    return "iptables"
