"""How much may pass at once without being held back? Bursts and packets small enough that short messages are shaped."""

MTU_BYTES = 1514
# A credit that is larger than this lets a short message through unshaped; a smaller one starves a fast link, whose
# timer is not finer. Measured from 10 Mbit/s to 1 Gbit/s.
BURST_S, SMALLEST_BURST_BYTES = 0.000_12, 2 * 1024
# Smaller packets fill the leaf sooner; what it drops lets TCP share a link so unevenly that workers fall out of step
# (4.5 MB, 100 Mbit/s, two workers on one server: 0.90 of the closed form with 1, 0.93 with 11).
FEWEST_SEGMENTS = 11


def burst_bytes(rate_bps: float) -> int:
    """Credit of a shaped link after a pause."""
    return max(SMALLEST_BURST_BYTES, int(rate_bps * BURST_S / 8))


def segments(slowest_bps: float) -> int:
    """Packets of one MTU that TCP may hand to the kernel as one, given the slowest rate on their ways.

    HTB lets a packet pass whole as soon as there is any credit, and the kernel hands it up to 64 KiB as one packet: a
    short message would pass unshaped after a pause. So no more than the credit may travel as one, but 16 KB.
    """
    return max(FEWEST_SEGMENTS, burst_bytes(slowest_bps) // MTU_BYTES)
