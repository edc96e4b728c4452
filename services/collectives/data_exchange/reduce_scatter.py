"""Reduce-scatter along a ring, after which every rank has the sum of one chunk.

Reference: Thakur, Rabenseifner & Gropp, IJHPCA 19, 2005.
"""

from collections.abc import Sequence

from services.collectives.base import Transfer, TransferSchedule


def plan_ring_reduce_scatter(chunk_sizes: Sequence[int]) -> TransferSchedule:
    """Return the schedule of a reduce-scatter after which rank k has the sum of chunk k over all ranks.

    The sum of chunk k starts at rank k+1 and ends at rank k. The other chunks of a rank then contain partial sums.
    Every rank sends n-1 of the n chunks to the next rank, in n-1 rounds: (n-1)(α + S/n·β) for chunks of equal size.
    `chunk_sizes` are the entries that each rank receives, by rank.
    """
    ranks = len(chunk_sizes)
    rounds = tuple(
        tuple(
            Transfer(rank, (rank + 1) % ranks, (rank - 1 - hop) % ranks, (rank - 1 - hop) % ranks + 1, "reduce")
            for rank in range(ranks)
        )
        for hop in range(ranks - 1)
    )
    return TransferSchedule(chunk_count=ranks, chunk_sizes=tuple(chunk_sizes), rounds=rounds, is_pipelined=True)
