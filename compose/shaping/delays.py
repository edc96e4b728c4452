"""How are delays, losses and partitions told to a kernel? Rules of its packet filter, queues of ours, or netem."""

from collections.abc import Mapping
from typing import Any

from compose.shaping.bursts import MTU_BYTES
from compose.shaping.htb_tree import PORT_BUFFER_BYTES
from compose.shaping.link_state import LinkState
from services.cluster.impairments import GilbertElliottLoss, IndependentLoss
from services.cluster.network import NetworkPath

APART, DELAY = "ensayo-apart", "ensayo-delay"  # chains of a node's packet filter
NETEM_PACKETS = 100_000  # under way where no rate says how many that can be; netem's own 1000 are 12 ms at 1 Gbit/s


def firewall(device: str, state: LinkState, addresses: Mapping[str, str], *, first: bool) -> str:
    """Input for `iptables-restore --noflush`; both chains are replaced at once, whatever stood in them.

    Args:
        device: the node's, on the data network.
        state: of its link.
        addresses: node -> data address; the order gives queues their numbers.
        first: whether the chains have to be entered, too.
    """
    numbers = {name: number for number, name in enumerate(addresses)}
    lines = ["*filter", f":{APART} - [0:0]", f":{DELAY} - [0:0]"]
    lines += [f"-A INPUT -i {device} -j {chain}" for chain in (APART, DELAY) if first]
    lines += [f"-A {APART} -s {addresses[name]}/32 -j DROP" for name in state.apart]
    lines += [
        f"-A {DELAY} -s {addresses[path.source]}/32 -j NFQUEUE --queue-num {numbers[path.source]}"
        for path in state.paths
    ]
    return "\n".join([*lines, "COMMIT"])


def queues(state: LinkState, addresses: Mapping[str, str], seed: int) -> dict[str, Any]:
    """What the delay line has to know (`services.shaper.delay_line`): queue -> path and seed."""
    numbers = {name: number for number, name in enumerate(addresses)}
    return {
        str(numbers[path.source]): {"seed": f"{seed} {path.source} {path.target}", "path": path.model_dump(mode="json")}
        for path in state.paths
    }


def netem_can(path: NetworkPath) -> bool:
    """Whether netem follows this path's laws: it reorders packets under jitter, and loses by one law only."""
    alike = all(isinstance(law, IndependentLoss) for law in path.losses)
    return not path.jitters and (alike or len(path.losses) == 1)


def netem(path: NetworkPath, rate_bps: float | None, buffer_bytes: int | None) -> str:
    """The queue of one source, as `tc` writes it; a port's buffer is counted in full frames on top of the delay's."""
    packets = _packets(path, rate_bps, buffer_bytes or PORT_BUFFER_BYTES) if rate_bps else NETEM_PACKETS
    delay = [f"delay {round(path.delay_s * 1e6)}us"] if path.delay_s else []
    return " ".join(["netem", f"limit {packets}", *delay, *_netem_loss(path)])


def _packets(path: NetworkPath, rate_bps: float, buffer_bytes: int) -> int:
    return int((buffer_bytes + rate_bps * path.delay_s / 8) / MTU_BYTES) + 1


def _netem_loss(path: NetworkPath) -> list[str]:
    """Independent losses one after the other are one."""
    if not path.losses:
        return []
    law = path.losses[0]
    if isinstance(law, GilbertElliottLoss):
        return [f"loss gemodel {law.to_bad:.6%} {law.to_good:.6%} {law.share_bad:.6%} {law.share_good:.6%}"]
    return [f"loss random {path.loss_share:.6%}"]
