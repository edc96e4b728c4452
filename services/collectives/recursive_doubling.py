"""Recursive doubling, also called butterfly: an all-reduce in which partners swap vectors.

Reference: Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19, 2005.
"""

from typing import ClassVar, Literal

from services.collectives.base import Transfer, TransferSchedule
from services.collectives.folding import add_folding_rounds, folding_time_s, ranks_after_folding
from services.collectives.pairwise_exchange import PairwiseExchangeCollective


class RecursiveDoubling(PairwiseExchangeCollective):
    """All-reduce in which pairs of ranks swap whole vectors.

    The distance to the partner doubles from round to round. It has the fewest rounds and moves the most bytes: for
    small vectors. Where n is not a power of two, some ranks send their vectors to a neighbour first (folding).
    """

    kind: Literal["recursive_doubling"] = "recursive_doubling"
    closed_form: ClassVar[str] = "⌊lg n⌋(2α + S·β); + 2(α + S·β) where n ≠ 2^k"
    eager_closed_form: ClassVar[str] = "⌊lg n⌋(α + S·β); + 3α + 2S·β where n ≠ 2^k"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        ranks = ranks_after_folding(rank_count)
        rounds = tuple(
            tuple(Transfer(rank, ranks[position ^ distance], 0, 1, "reduce") for position, rank in enumerate(ranks))
            for distance in (1 << bit for bit in range(len(ranks).bit_length() - 1))
        )
        rounds_with_tokens = self._insert_readiness_tokens(rounds)
        with_start_signals = not self.ranks_wait_for_tokens
        return TransferSchedule(
            rounds=add_folding_rounds(rank_count, 1, rounds_with_tokens, with_start_signals=with_start_signals)
        )

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds.

        2^k ranks swap the whole vector k times, with k = ⌊lg `rank_count`⌋. Each other rank sends its vector once and
        gets the total once. With a rendezvous, a token precedes each swap. Without one, the first swap waits for a
        token where ranks fold.
        """
        has_folded_ranks = rank_count != len(ranks_after_folding(rank_count))
        token_s = alpha_s * (has_folded_ranks and not self.ranks_wait_for_tokens)
        swap_s = (rank_count.bit_length() - 1) * (self._messages_per_round * alpha_s + vector_bytes * beta_s_per_byte)
        return token_s + swap_s + folding_time_s(rank_count, vector_bytes, alpha_s, beta_s_per_byte)
