"""Sizes of Ethernet frames, and number of frames that TCP passes to the kernel as one packet."""

FRAME_BYTES = 1514  # of a full frame, as tc counts
PAYLOAD_BYTES = 1448  # TCP payload of a full frame
# On a fast link, packets of one frame would use up the host's cores. 11 frames take 1.35 ms at 100 Mbit/s; on slower
# links, a packet has fewer frames. On links above 1.2 Gbit/s, a packet of the size of the link's burst has more.
MAX_FRAMES_PER_PACKET = 11
