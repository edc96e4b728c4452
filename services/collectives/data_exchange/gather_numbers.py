"""All-gather of one number per rank, in as few rounds as possible.

Reference: J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems",
IEEE TPDS 8(11), 1997.
"""

import asyncio

import numpy as np

from services.collectives.data_exchange.blocks import receive_block, send_block
from services.collectives.execution.executor import GroupMember

NUMBER_BYTES = 8


def gather_rounds(rank_count: int) -> tuple[tuple[int, int], ...]:
    """Return the rounds of the all-gather: the distance between sender and receiver, and the numbers in a message.

    There are ⌈lg n⌉ rounds for n ranks, in which each rank sends n-1 numbers in all.
    """
    distances = (1 << bit for bit in range((rank_count - 1).bit_length()))
    return tuple((distance, min(distance, rank_count - distance)) for distance in distances)


def gather_target_ranks(rank_count: int, rank: int) -> tuple[int, ...]:
    """Return the ranks to which a rank sends numbers, by round."""
    return tuple((rank - distance) % rank_count for distance, _ in gather_rounds(rank_count))


async def gather_numbers(member: GroupMember, step: int, number: float) -> tuple[float, ...]:
    """Return the numbers of all ranks, by rank. All ranks get the same bits.

    In each round, a rank sends the numbers that it has so far to a rank at twice the distance of the previous round.

    Args:
        member: this rank and its group.
        step: number that separates the messages of this call from those of other calls.
        number: the number of this rank.

    Raises:
        NetworkError: a rank is gone, or has not sent in time.
    """
    ranks = len(member.node_names)
    numbers = np.full(ranks, number)  # by distance to the next higher ranks
    for distance, count in gather_rounds(ranks):
        async with asyncio.TaskGroup() as exchange:
            target, source = (member.rank - distance) % ranks, (member.rank + distance) % ranks
            exchange.create_task(send_block(member, step, target, numbers[:count]))
            exchange.create_task(receive_block(member, step, source, numbers[distance : distance + count]))
    return tuple(np.roll(numbers, member.rank).tolist())
