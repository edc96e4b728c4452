"""The commands that make a link what the plan says, and the reading of what the kernel made of them.

Commands are built here and run elsewhere, by a helper container that shares a node's network namespace. Egress is
shaped at the node's interface. Ingress is redirected to an ifb device and shaped there, so that many senders to one
receiver share its downlink, as they would share the port of a switch.
"""

import re

from services.plan import NodePlan

IFB = "ifb0"
MTU_BYTES = 1514
# A credit that is larger than this lets a short message through unshaped; a smaller one starves a fast link, whose
# timer is not finer. Measured from 10 Mbit/s to 1 Gbit/s.
BURST_S, SMALLEST_BURST_BYTES = 0.000_12, 2 * 1024
# Smaller packets fill the leaf sooner; what it drops lets TCP share a link so unevenly that workers fall out of step
# (4.5 MB, 100 Mbit/s, two workers on one server: 0.90 of the closed form with 1, 0.93 with 11).
FEWEST_SEGMENTS = 11
# HTB's own leaf holds as many packets as the device's queue is long, 32 on an ifb: a leaf of our own instead.
LEAF_PACKETS = 1000
_RATE = re.compile(r"class htb .*? rate ([0-9.]+)([KMGT]?)bit")  # iproute2 prints classes as JSON only since 6.7
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def burst_bytes(rate_bps: float) -> int:
    """Credit of a shaped link after a pause."""
    return max(SMALLEST_BURST_BYTES, int(rate_bps * BURST_S / 8))


def segments(node: NodePlan, dilation: float) -> int:
    """Packets of one MTU that TCP may hand to the kernel as one.

    HTB lets a packet pass whole as soon as there is any credit, and the kernel hands it up to 64 KiB as one packet: a
    short message would pass unshaped after a pause. So no more than the credit may travel as one, but 16 KB.
    """
    slowest = min(rate for rate in (node.uplink_bps, node.downlink_bps) if rate) / dilation
    return max(FEWEST_SEGMENTS, burst_bytes(slowest) // MTU_BYTES)


def details(node: NodePlan, dilation: float) -> dict[str, int]:
    """What else was chosen for a node's link, for the record."""
    rates = {"uplink": node.uplink_bps, "downlink": node.downlink_bps}
    bursts = {f"{name}_burst_bytes": burst_bytes(rate / dilation) for name, rate in rates.items() if rate}
    return bursts | {"packet_segments": segments(node, dilation)}


def script(node: NodePlan, dilation: float) -> str:
    """A shell script that shapes both directions of the node's data link and prints what the kernel then has.

    The interface is found by the node's address, since an engine may name it as it likes.
    """
    lines = ["set -e", f"dev=$(ip -o -4 addr show to {node.place.data.host} | awk '{{print $2}}')"]
    lines += [f"ip link set dev $dev gso_max_segs {segments(node, dilation)}"]
    if node.uplink_bps:
        lines += _htb("$dev", node.uplink_bps / dilation)
    if node.downlink_bps:
        lines += _ingress() + _htb(IFB, node.downlink_bps / dilation)
    devices = (["$dev"] if node.uplink_bps else []) + ([IFB] if node.downlink_bps else [])
    return "\n".join([*lines, *(f"tc class show dev {device}" for device in devices)])


def read_back(node: NodePlan, dilation: float, printed: str) -> tuple[float | None, float | None]:
    """Uplink and downlink in virtual bit/s that the kernel enforces, from what `script` printed."""
    shown = (float(rate) * _PREFIXES[prefix] * dilation for rate, prefix in _RATE.findall(printed))
    uplink = next(shown, None) if node.uplink_bps else None
    downlink = next(shown, None) if node.downlink_bps else None
    return uplink, downlink


def _htb(device: str, rate_bps: float) -> list[str]:
    """One class for everything, with an explicit leaf."""
    rate, burst = round(rate_bps), burst_bytes(rate_bps)
    limits = f"rate {rate}bit ceil {rate}bit burst {burst} cburst {burst} quantum 65536"
    return [
        f"tc qdisc add dev {device} root handle 1: htb default 1",
        f"tc class add dev {device} parent 1: classid 1:1 htb {limits}",
        f"tc qdisc add dev {device} parent 1:1 handle 10: pfifo limit {LEAF_PACKETS}",
    ]


def _ingress() -> list[str]:
    """Everything that arrives goes through the ifb device first."""
    return [
        f"ip link add {IFB} type ifb",
        f"ip link set {IFB} up txqueuelen {LEAF_PACKETS}",
        "tc qdisc add dev $dev handle ffff: ingress",
        f"tc filter add dev $dev parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev {IFB}",
    ]
