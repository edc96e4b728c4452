"""All-gather along a ring, after which every rank has the chunks of all ranks.

Reference: Thakur, Rabenseifner & Gropp, IJHPCA 19, 2005.
"""

from collections.abc import Sequence

from services.collectives.base import Transfer, TransferSchedule


def plan_ring_all_gather(chunk_sizes: Sequence[int]) -> TransferSchedule:
    """Return the schedule of an all-gather in which rank k contributes chunk k of the vector.

    Every rank sends n-1 of the n chunks to the next rank, in n-1 rounds: (n-1)(α + S/n·β) for chunks of equal size.
    `chunk_sizes` are the entries that each rank contributes, by rank.
    """
    ranks = len(chunk_sizes)
    rounds = tuple(
        tuple(
            Transfer(rank, (rank + 1) % ranks, (rank - hop) % ranks, (rank - hop) % ranks + 1, "copy")
            for rank in range(ranks)
        )
        for hop in range(ranks - 1)
    )
    return TransferSchedule(chunk_count=ranks, chunk_sizes=tuple(chunk_sizes), rounds=rounds, is_pipelined=True)
