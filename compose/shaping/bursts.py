"""How much may pass at once without being held back? Bursts and packets small enough that short messages are shaped."""

MTU_BYTES = 1514
# A credit that is larger than this lets a short message through unshaped; a smaller one starves a fast link, whose
# timer is not finer. Measured from 10 Mbit/s to 1 Gbit/s.
BURST_S, SMALLEST_BURST_BYTES = 0.000_12, 2 * 1024
# Single packets of a fast link would cost the host its cores. 11 of them last as long as this at 100 Mbit/s; where no
# way is as fast, fewer do. A message is early by the one that passes whole: by about what the host's timers may be off.
MOST_SEGMENTS, LONGEST_PACKET_S = 11, 0.001_35


def burst_bytes(rate_bps: float) -> int:
    """Credit of a shaped link after a pause."""
    return max(SMALLEST_BURST_BYTES, int(rate_bps * BURST_S / 8))


def segments(slowest_bps: float, fastest_bps: float) -> int:
    """Packets of one MTU that TCP may hand to the kernel as one, given rates of the sender's ways.

    HTB lets a packet pass whole as soon as there is any credit, and the kernel hands it up to 64 KiB as one packet: a
    short message would pass unshaped after a pause. So no more than the slowest link's credit may travel as one, or up
    to 16 KB that pass the fastest way in 1.35 ms.
    """
    in_time = min(MOST_SEGMENTS, fastest_bps * LONGEST_PACKET_S / 8 / MTU_BYTES)
    return max(1, int(in_time), burst_bytes(slowest_bps) // MTU_BYTES)
