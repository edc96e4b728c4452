"""How long a shaped link takes: the fluid model that the virtual fabric and the `local` engine share.

A node has an uplink and a downlink; both pass messages in order, at a constant rate, at the same time: a message leaves
the sender's link while it enters the receiver's, so n senders to one receiver share its downlink.
"""

from dataclasses import dataclass, field
from math import inf

# A shaped rate counts whole Ethernet frames as tc does: 1448 bytes of payload travel in 1514.
PAYLOAD_SHARE = 1448 / 1514


def goodput(rate_bps: float | None) -> float:
    """Payload bytes per second that a link of `rate_bps` bit/s carries; infinite when it is not shaped."""
    return inf if rate_bps is None else rate_bps * PAYLOAD_SHARE / 8


# A port passes messages one after the other; cut finely, the messages of several streams share it as TCP flows do.
QUANTUM_BYTES = 64 << 10


@dataclass(slots=True)
class Port:
    """One direction of one node's link; times in virtual seconds."""

    bytes_per_s: float
    free_at: float = field(default=0.0)

    def take(self, now: float, size: int) -> tuple[float, float]:
        """Uplink: when a message handed over at `now` starts on the link, and when it has passed."""
        start = max(now, self.free_at)
        self.free_at = start + size / self.bytes_per_s
        return start, self.free_at

    def give(self, sent_at: float, passed_at: float, size: int) -> float:
        """Downlink: when a message has arrived that was on the sender's link from `sent_at` to `passed_at`."""
        start = max(sent_at, self.free_at)
        self.free_at = max(passed_at, start + size / self.bytes_per_s)
        return self.free_at
