"""What does an HTB look like that limits a link, and pairs of nodes within it? Lines for `tc -batch`."""

from collections.abc import Mapping

from compose.shaping.bursts import MTU_BYTES, burst_bytes, segments
from compose.shaping.filters import octet

# HTB's own leaf holds as many packets as the device's queue is long, 32 on an ifb: a leaf of our own instead. This many
# packets wait for a node's own uplink, where TCP limits what each of its sockets has waiting.
LEAF_PACKETS = 1000
# Of a port in a network, where none is declared: about what a port of a rack's switch may hold of its memory. With
# 16 MB the queue of eight senders at 100 Mbit/s grew past a second, and they sent again what had only waited.
PORT_BUFFER_BYTES = 512 << 10
LINK, REST = "1:1", "1:2"  # a link's class; what in it is bound for no limited pair
# A class inside another gets next to nothing of its own and borrows up to its limit: what classes own, they send even
# when the sum of it exceeds what their parent may.
OWN_SHARE = 1e-3
# Classes that borrow take turns. A long turn of one makes another, which may send a packet now and then, lose time
# for which it has no credit: with turns of 64 KiB and the credit of its rate, 20 Mbit/s inside 100 were 11.
TURN_BYTES, INNER_TURN_BYTES, INNER_CREDIT_BYTES = 64 << 10, 16 << 10, 32 << 10
UNLIMITED_BPS = 100e9  # for a downlink without a rate whose packets are delayed


def link(device: str, rate_bps: float | None, inside: Mapping[str, float], leaf: str = "") -> list[str]:
    """A link with limits for some peers in it; what nothing limits passes directly.

    Args:
        device: to shape.
        rate_bps: of the link; None when only pairs are limited.
        inside: address of a peer -> rate in bit/s.
        leaf: the queue of the link, as `tc` writes it; 1000 packets unless given.
    """
    if rate_bps is None:
        return [root(device), *(line for item in inside.items() for line in pair(device, "1:", *item))]
    if not inside:
        return [root(device, "1"), limit(device, "1:", LINK, rate_bps), *queue(device, LINK, leaf)]
    return [
        root(device, "2"),
        limit(device, "1:", LINK, rate_bps),
        limit(device, LINK, REST, rate_bps, OWN_SHARE),
        *queue(device, REST, leaf),
        *(
            line
            for address, own_bps in inside.items()
            for line in pair(device, LINK, address, min(own_bps, rate_bps), OWN_SHARE)
        ),
    ]


def redirect(device: str, ifb: str) -> list[str]:
    """Commands after which everything that arrives goes through another device first, where it can wait."""
    everything = f"parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev {ifb}"
    return [
        f"ip link add {ifb} type ifb",
        f"ip link set {ifb} up txqueuelen {LEAF_PACKETS}",
        f"tc qdisc add dev {device} handle ffff: ingress",
        f"tc filter add dev {device} {everything}",
    ]


def pair(device: str, parent: str, address: str, rate_bps: float, share: float = 1.0) -> list[str]:
    """The class of one peer and its queue."""
    classid = class_of(address)
    return [
        limit(device, parent, classid, rate_bps, share),
        *queue(device, classid, port(segments(rate_bps, rate_bps))),
    ]


def port(most_segments: int, buffer_bytes: int | None = None) -> str:
    """The queue of a port, as `tc` writes it: of bytes, so that large packets make it no longer than small ones.

    Args:
        most_segments: of a packet that passes; one has to fit.
        buffer_bytes: as declared.
    """
    return f"bfifo limit {max(buffer_bytes or PORT_BUFFER_BYTES, MTU_BYTES * most_segments)}"


def class_of(address: str) -> str:
    """The class of a peer."""
    return f"1:1{octet(address):02x}"


def root(device: str, default: str = "") -> str:
    """The HTB itself; without a default, what no filter takes passes unlimited."""
    return f"qdisc add dev {device} root handle 1: htb" + (f" default {default}" if default else "")


def limit(device: str, parent: str, classid: str, rate_bps: float, share: float = 1.0, verb: str = "add") -> str:
    """A class; `share` of its rate is its own, the rest is borrowed from its parent."""
    rate, own, burst = round(rate_bps), max(1000, round(rate_bps * share)), burst_bytes(rate_bps)
    turn, credit = (TURN_BYTES, burst) if share == 1.0 else (INNER_TURN_BYTES, max(burst, INNER_CREDIT_BYTES))
    limits = f"rate {own}bit ceil {rate}bit burst {burst} cburst {credit} quantum {turn}"
    return f"class {verb} dev {device} parent {parent} classid {classid} htb {limits}"


def queue(device: str, classid: str, kind: str = "") -> list[str]:
    """What waits for a class; its handle is the class's number with a 2 before it."""
    number = int(classid.split(":")[1], 16)
    return [
        f"qdisc add dev {device} parent {classid} handle {0x2000 + number:x}: {kind or f'pfifo limit {LEAF_PACKETS}'}"
    ]


def limits(device: str, rate_bps: float, inside: Mapping[str, float], verb: str = "change") -> list[str]:
    """The classes of a link with limits in it, and nothing else; to change them leaves all queues as they are."""
    if not inside:
        return [limit(device, "1:", LINK, rate_bps, verb=verb)]
    return [
        limit(device, "1:", LINK, rate_bps, verb=verb),
        limit(device, LINK, REST, rate_bps, OWN_SHARE, verb),
        *(
            limit(device, LINK, class_of(address), min(own_bps, rate_bps), OWN_SHARE, verb)
            for address, own_bps in inside.items()
        ),
    ]
