"""Broadcast along a binomial tree, after which every rank has the vector of one rank.

Reference: Thakur, Rabenseifner & Gropp, IJHPCA 19, 2005. We differ in that long vectors are forwarded in pieces.
"""

from services.collectives.base import Transfer, TransferSchedule


def plan_tree_broadcast(rank_count: int, root_rank: int) -> TransferSchedule:
    """Return the schedule of a broadcast from `root_rank` to all other ranks.

    In each of ⌈lg n⌉ rounds, all ranks that have the vector send it to as many others: at most ⌈lg n⌉(α + S·β).
    """
    distances = [1 << bit for bit in reversed(range((rank_count - 1).bit_length()))]
    rounds = tuple(
        tuple(
            Transfer((root_rank + place) % rank_count, (root_rank + place + distance) % rank_count, 0, 1, "copy")
            for place in range(0, rank_count - distance, 2 * distance)
        )
        for distance in distances
    )
    return TransferSchedule(rounds=rounds, is_pipelined=True)
