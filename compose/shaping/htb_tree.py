"""Lines for `tc -batch` that limit the rates of a link with HTB classes and queues.

The rate of the whole link and the rates to single peers are limited. Peers with a class of their own take turns on the
link, as with the fair queues that hosts have by default (`fq`, `fq_codel`).
"""

from collections.abc import Mapping
from math import inf

from compose.shaping.bursts import htb_burst_bytes, max_gso_segments
from compose.shaping.filters import last_octet
from services.cluster.links.ethernet import FRAME_BYTES

# The queue that HTB creates itself holds as many packets as the queue of the device, 32 on an ifb, so each class gets
# an explicit queue. This length suits a node's own uplink, where TCP limits how much each socket has waiting.
LEAF_QUEUE_PACKETS = 1000
# Buffer of a switch port when the scenario declares none: about the share of memory that one port of a rack's switch
# may use. With 16 MB, the queue of eight senders at 100 Mbit/s grew past a second, and TCP retransmitted packets that
# were only waiting.
DEFAULT_BUFFER_BYTES = 512 << 10
LINK_CLASS, DEFAULT_CLASS = "1:1", "1:2"  # of the whole link; of its traffic to peers without a limit
# A class inside another has almost no guaranteed rate and borrows up to its limit. Classes send at their guaranteed
# rates even when the sum exceeds the rate of their parent: with at least 1000 bit/s for each of 16 classes, a link of
# 12.5 kbit/s would send 28 % too much.
GUARANTEED_SHARE = 1e-3
MIN_CLASS_BPS = 8  # the kernel stores rates in whole bytes per second, and rejects zero
# Classes that borrow take turns of one quantum. During a long turn of one class, a slower class loses sending time that
# its cburst does not make up for: with a quantum of 64 KiB and a cburst sized by its rate, a class of 20 Mbit/s inside
# a link of 100 Mbit/s reached 11 Mbit/s.
QUANTUM_BYTES, INNER_QUANTUM_BYTES, INNER_CBURST_BYTES = 64 << 10, 16 << 10, 32 << 10
IFB_DEVICE = "ifb0"  # device through which arriving packets are redirected, so that they can be queued
UNLIMITED_BPS = 100e9  # rate of a downlink that declares a delay and no rate


def link_htb_tree_lines(
    device: str, rate_bps: float | None, peer_limits_bps: Mapping[str, float | None], link_qdisc: str = ""
) -> list[str]:
    """Return lines for `tc -batch` that limit the total rate of a link and its rates to single peers.

    Peers share the rate of the link equally.

    Args:
        device: interface to shape.
        rate_bps: rate of the whole link; None when only peers are limited, each of them by a limit of its own.
        peer_limits_bps: address of each peer with a class -> its own limit in bit/s. None: the peer has a class, but
            only the rate of the link limits it.
        link_qdisc: queue of the link in the syntax of `tc`; by default, a queue of 1000 packets.
    """
    if rate_bps is None:
        return _pair_tree_lines(device, peer_limits_bps)
    if not peer_limits_bps:
        return [
            htb_root_line(device, "1"),
            htb_class_line(device, "1:", LINK_CLASS, rate_bps),
            *make_queue_tc_lines(device, LINK_CLASS, link_qdisc),
        ]
    return [
        htb_root_line(device, "2"),
        *link_htb_class_lines(device, rate_bps, peer_limits_bps, "add"),
        *make_queue_tc_lines(device, DEFAULT_CLASS, link_qdisc),
        *(line for peer, limit_bps in peer_limits_bps.items() for line in _peer_queue_lines(device, peer, limit_bps)),
    ]


def ingress_redirect_commands(device: str) -> list[str]:
    """Return shell commands that redirect all arriving packets through the ifb device.

    There, the packets can be queued.
    """
    redirect = f"parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev {IFB_DEVICE}"
    return [
        f"ip link add {IFB_DEVICE} type ifb",
        f"ip link set {IFB_DEVICE} up txqueuelen {LEAF_QUEUE_PACKETS}",
        f"tc qdisc add dev {device} handle ffff: ingress",
        f"tc filter add dev {device} {redirect}",
    ]


def link_buffer_qdisc(max_segments_per_packet: int, buffer_bytes: int | None = None) -> str:
    """Return the queue that buffers packets before a link, in the syntax of `tc`.

    It works like the port of a switch. Its limit is in bytes, so that a queue of large packets takes no longer to drain
    than one of small packets.

    Args:
        max_segments_per_packet: segments of the largest packet that passes; the queue holds at least one such packet.
        buffer_bytes: declared size; None for `DEFAULT_BUFFER_BYTES`.
    """
    return f"bfifo limit {max(buffer_bytes or DEFAULT_BUFFER_BYTES, FRAME_BYTES * max_segments_per_packet)}"


def peer_class_id(address: str) -> str:
    """Return the id of the HTB class for the traffic to one peer."""
    return f"1:1{last_octet(address):02x}"


def htb_root_line(device: str, default_class: str = "") -> str:
    """Return the `tc` line that adds the root HTB queue.

    Without `default_class`, unmatched packets are not limited.
    """
    return f"qdisc add dev {device} root handle 1: htb" + (f" default {default_class}" if default_class else "")


def htb_class_line(
    device: str, parent_class: str, class_id: str, rate_bps: float, guaranteed_share: float = 1.0, tc_op: str = "add"
) -> str:
    """Return the line for `tc -batch` that adds or changes an HTB class.

    The class may always send at `guaranteed_share` of its rate and borrows the rest from its parent.
    """
    ceil, burst = round(rate_bps), htb_burst_bytes(rate_bps)
    guaranteed = max(MIN_CLASS_BPS, round(rate_bps * guaranteed_share))
    quantum, cburst = QUANTUM_BYTES, burst
    if guaranteed_share != 1.0:
        quantum, cburst = INNER_QUANTUM_BYTES, max(burst, INNER_CBURST_BYTES)
    limits = f"rate {guaranteed}bit ceil {ceil}bit burst {burst} cburst {cburst} quantum {quantum}"
    return f"class {tc_op} dev {device} parent {parent_class} classid {class_id} htb {limits}"


def make_queue_tc_lines(device_name: str, class_id: str, qdisc_with_options: str = "") -> list[str]:
    """Return the `tc` line that adds a queue to an HTB class.

    The queue's handle is the class number plus 0x2000.
    """
    handle = 0x2000 + int(class_id.split(":")[1], 16)
    qdisc_with_options = qdisc_with_options or f"pfifo limit {LEAF_QUEUE_PACKETS}"
    return [f"qdisc add dev {device_name} parent {class_id} handle {handle:x}: {qdisc_with_options}"]


def link_htb_class_lines(
    device: str, rate_bps: float, peer_limits_bps: Mapping[str, float | None], tc_op: str = "change"
) -> list[str]:
    """Return lines for `tc -batch` that add or change the HTB classes of a link and its peers.

    Queues are not included. A change of classes leaves the packets in all queues as they are.
    """
    link_line = htb_class_line(device, "1:", LINK_CLASS, rate_bps, tc_op=tc_op)
    if not peer_limits_bps:
        return [link_line]
    rates_bps = {DEFAULT_CLASS: rate_bps} | {
        peer_class_id(peer): peer_rate_bps(rate_bps, limit_bps) for peer, limit_bps in peer_limits_bps.items()
    }
    return [
        link_line,
        *(
            htb_class_line(device, LINK_CLASS, class_id, class_bps, GUARANTEED_SHARE, tc_op)
            for class_id, class_bps in rates_bps.items()
        ),
    ]


def peer_rate_bps(link_bps: float, limit_bps: float | None) -> float:
    """Return the highest rate to a peer in bit/s: the rate of the link, or the peer's limit if it is lower."""
    return link_bps if limit_bps is None else min(link_bps, limit_bps)


def _pair_tree_lines(device: str, peer_limits_bps: Mapping[str, float | None]) -> list[str]:
    """Return lines for `tc -batch` that limit the rates to single peers on a link without a limit.

    Packets without a limit are sent without a class.
    """
    lines = [htb_root_line(device)]
    for peer, limit_bps in peer_limits_bps.items():
        lines.append(htb_class_line(device, "1:", peer_class_id(peer), peer_rate_bps(inf, limit_bps)))
        lines += _peer_queue_lines(device, peer, limit_bps)
    return lines


def _peer_queue_lines(device: str, peer: str, limit_bps: float | None) -> list[str]:
    """Return the line for `tc -batch` that adds the queue to the class of a peer.

    A limit to one peer is a link of its own behind the node, with the buffer of a switch port.
    """
    qdisc = "" if limit_bps is None else link_buffer_qdisc(max_gso_segments(limit_bps, limit_bps))
    return make_queue_tc_lines(device, peer_class_id(peer), qdisc)
