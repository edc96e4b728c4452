"""Settings that delay or drop packets.

They are for the packet filter, for the delaying process, and for netem queues.
"""

from collections.abc import Mapping
from typing import Any

from compose.shaping.htb_tree import DEFAULT_BUFFER_BYTES
from compose.shaping.link_state import LinkState
from services.cluster.links.ethernet import FRAME_BYTES
from services.cluster.links.impairments import GilbertElliottPacketLoss, IndependentPacketLoss
from services.cluster.network import NetworkPath

PARTITION_CHAIN, DELAY_CHAIN = "ensayo-apart", "ensayo-delay"  # chains of a node's packet filter
# Length of a netem queue when no rate limits how many packets are under way. The default of netem, 1000 packets, is
# full after 12 ms at 1 Gbit/s.
NETEM_QUEUE_PACKETS = 100_000


def make_iptables_rules(
    device: str, link_state: LinkState, node_addresses: Mapping[str, str], *, include_jumps: bool
) -> str:
    """Return rules for `iptables-restore --noflush` that drop or delay packets.

    Packets that have to be delayed are queued for a process that delays them. The node's partition chain and delay
    chain are replaced in one step, whatever rules they had.

    Args:
        device: interface of the node on the data network.
        link_state: state of the node's link.
        node_addresses: node -> data address; the position of a node is the number of its queue.
        include_jumps: whether to add the rules that jump from INPUT to both chains; needed once per node.
    """
    numbers = {name: number for number, name in enumerate(node_addresses)}
    lines = ["*filter", f":{PARTITION_CHAIN} - [0:0]", f":{DELAY_CHAIN} - [0:0]"]
    lines += [f"-A INPUT -i {device} -j {chain}" for chain in (PARTITION_CHAIN, DELAY_CHAIN) if include_jumps]
    lines += [f"-A {PARTITION_CHAIN} -s {node_addresses[name]}/32 -j DROP" for name in link_state.partitioned_nodes]
    sources = (path.source for path in link_state.paths)
    lines += [
        f"-A {DELAY_CHAIN} -s {node_addresses[name]}/32 -j NFQUEUE --queue-num {numbers[name]}" for name in sources
    ]
    return "\n".join([*lines, "COMMIT"])


def make_nfqueue_delays(link_state: LinkState, node_addresses: Mapping[str, str], seed: int) -> dict[str, Any]:
    """Return the settings of the process that delays packets.

    The result maps each NFQUEUE number to a network path and a seed.
    """
    numbers = {name: number for number, name in enumerate(node_addresses)}
    return {
        str(numbers[path.source]): {"seed": f"{seed} {path.source} {path.target}", "path": path.model_dump(mode="json")}
        for path in link_state.paths
    }


def is_supported_by_netem(network_path: NetworkPath) -> bool:
    """Return whether netem can emulate the jitter and the packet losses declared for a network path.

    netem reorders packets under jitter, so paths with jitter are not supported. It applies one loss model at a time.
    """
    only_independent_losses = all(isinstance(loss, IndependentPacketLoss) for loss in network_path.losses)
    return not network_path.jitters and (only_independent_losses or len(network_path.losses) == 1)


def netem_qdisc(network_path: NetworkPath, rate_bps: float | None, buffer_bytes: int | None) -> str:
    """Return the netem queue for packets of one source, in the syntax of `tc`.

    Its limit is the buffer in full frames, plus the frames that the delay keeps under way at `rate_bps`.
    """
    packets = NETEM_QUEUE_PACKETS
    if rate_bps:
        packets = _netem_queue_packets(network_path, rate_bps, buffer_bytes or DEFAULT_BUFFER_BYTES)
    delay_options = [f"delay {round(network_path.delay_s * 1e6)}us"] if network_path.delay_s else []
    return " ".join(["netem", f"limit {packets}", *delay_options, *_netem_loss_options(network_path)])


def _netem_queue_packets(network_path: NetworkPath, rate_bps: float, buffer_bytes: int) -> int:
    return int((buffer_bytes + rate_bps * network_path.delay_s / 8) / FRAME_BYTES) + 1


def _netem_loss_options(network_path: NetworkPath) -> list[str]:
    """Return the loss options of netem for a network path.

    Several independent losses are combined into one.
    """
    if not network_path.losses:
        return []
    loss = network_path.losses[0]
    if isinstance(loss, GilbertElliottPacketLoss):
        return [f"loss gemodel {loss.to_bad:.6%} {loss.to_good:.6%} {loss.share_bad:.6%} {loss.share_good:.6%}"]
    return [f"loss random {network_path.lost_packet_share:.6%}"]
