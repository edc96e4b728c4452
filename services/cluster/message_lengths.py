"""How long are messages? Long vectors are sent in pieces, which follow each other through the ranks of a pipeline."""

from typing import NamedTuple


class Lengths(NamedTuple):
    """Of messages, in payload bytes."""

    largest: int  # at which a plane is fastest
    finest: int  # pipelines are cut no finer: more messages would cost more than they hide


# Larger messages leave the cache, smaller ones cost more per byte: gRPC is fastest at 1-2 MiB. 1 MB over four ranks
# behind 1 Gbit/s reaches 0.91 of the bound in pieces of 128 KiB and 0.86 in pieces twice as large, for a third more CPU
# time; 2 MB reach 0.94 and 0.93 for as much.
GRPC = Lengths(1 << 20, 128 << 10)

# The largest stays in the cache between the kernel and the sum. 1 MB over four ranks behind 1 Gbit/s reaches 0.91 of
# the bound in pieces of 128 KiB, 0.80 in pieces twice as large.
TCP = Lengths(1 << 20, 128 << 10)
