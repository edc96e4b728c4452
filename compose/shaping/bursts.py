"""Burst sizes and packet sizes of shaped links.

They are so small that the rate also limits short messages.
"""

from services.cluster.links.ethernet import FRAME_BYTES, MAX_FRAMES_PER_PACKET

# A larger burst lets a short message pass unshaped. A smaller burst starves a fast link, because the kernel's timer is
# not finer. Measured from 10 Mbit/s to 1 Gbit/s.
BURST_S, MIN_BURST_BYTES = 0.000_12, 2 * 1024
# A message arrives early by the duration of the one packet that passes at once, which is about the error of the host's
# timers.
MAX_PACKET_S = 0.001_35


def htb_burst_bytes(rate_bps: float) -> int:
    """Return the number of bytes that a shaped link may send at once after a pause.

    It is the burst of the link's HTB class.
    """
    return max(MIN_BURST_BYTES, int(rate_bps * BURST_S / 8))


def max_gso_segments(sender_min_path_bps: float, sender_max_path_bps: float) -> int:
    """Return the number of segments that TCP may pass to the kernel as one packet.

    Each segment has the size of one MTU. HTB lets a packet pass whole as soon as there is any credit, and the kernel
    builds packets of up to 64 KiB: after a pause, a short message would pass unshaped. So one packet holds no more than
    the burst of the slowest link, or up to 16 KB if the fastest link sends them in 1.35 ms.

    Args:
        sender_min_path_bps: the lowest rate on any path of the sender.
        sender_max_path_bps: the rate of the sender's fastest path.
    """
    segments_in_time = min(MAX_FRAMES_PER_PACKET, sender_max_path_bps * MAX_PACKET_S / 8 / FRAME_BYTES)
    return max(1, int(segments_in_time), htb_burst_bytes(sender_min_path_bps) // FRAME_BYTES)
