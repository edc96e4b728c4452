"""Folding, which lets a collective for a power of two of ranks run on any number of ranks.

The remaining ranks are folded: each sends its vector to a neighbour, waits, and receives the total.
"""

from collections.abc import Iterable

from services.collectives.base import Round, Transfer


def ranks_after_folding(rank_count: int) -> tuple[int, ...]:
    """Return the ranks that run a collective after folding; their number is a power of two.

    The others (folded) only send and get vectors. Folded ranks are the odd ones among the first ranks, one per rank
    beyond the power of two.
    """
    power = 1 << (rank_count.bit_length() - 1)
    folded = set(range(1, 2 * (rank_count - power), 2))
    return tuple(rank for rank in range(rank_count) if rank not in folded)


def add_folding_rounds(
    rank_count: int, chunk_count: int, rounds: Iterable[Round], *, with_start_signals: bool
) -> tuple[Round, ...]:
    """Return the given rounds with an additional round before and after them for surplus ranks.

    In the round before, the surplus ranks (folded ranks) send their vectors. In the round after, they get the total.
    Each folded rank sends to the even rank before it. With `with_start_signals`, ranks that receive no folded vector
    wait for an empty message before their first message, so that it does not share a link with a folded vector.
    """
    folded = range(1, 2 * (rank_count - len(ranks_after_folding(rank_count))), 2)
    if not folded:
        return tuple(rounds)
    reduce_round = tuple(Transfer(rank, rank - 1, 0, chunk_count, "reduce") for rank in folded)
    waiting = ranks_after_folding(rank_count)[len(folded) :]
    tokens = tuple(
        Transfer(folded[k % len(folded)] - 1, rank, 0, chunk_count, "token") for k, rank in enumerate(waiting)
    )
    copy_round = tuple(Transfer(rank - 1, rank, 0, chunk_count, "copy") for rank in folded)
    return (reduce_round, *((tokens,) if with_start_signals else ()), *rounds, copy_round)


def folding_time_s(rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
    """Return the seconds that folding adds to the run time of a collective.

    Ranks beyond a power of two send their vector and receive the total.
    """
    is_power_of_two = rank_count == len(ranks_after_folding(rank_count))
    return 0.0 if is_power_of_two else 2 * (alpha_s + vector_bytes * beta_s_per_byte)
