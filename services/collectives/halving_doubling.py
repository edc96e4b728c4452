"""Recursive halving and doubling: an all-reduce by reduce-scatter and all-gather.

Reference: R. Rabenseifner, ICCS 2004. We differ where n is not a power of two: folded ranks send their whole vector
instead of swapping halves. On full-duplex links that moves as many bytes in one message less.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from services.collectives.base import Round, Transfer, TransferSchedule
from services.collectives.folding import add_folding_rounds, folding_time_s, ranks_after_folding
from services.collectives.pairwise_exchange import PairwiseExchangeCollective


class HalvingDoubling(PairwiseExchangeCollective):
    """All-reduce as a reduce-scatter by recursive halving and an all-gather by recursive doubling.

    Partners swap halves of the data that they still sum, until each rank owns the total of one chunk. Then they swap
    totals in the reverse order. Where n is a power of two, it moves as few bytes as a ring in far fewer messages.
    """

    kind: Literal["halving_doubling"] = "halving_doubling"
    closed_form: ClassVar[str] = "4⌊lg n⌋α + 2(p-1)/p·S·β; + 2(α + S·β) where n ≠ p = 2^⌊lg n⌋"
    eager_closed_form: ClassVar[str] = "2⌊lg n⌋α + 2(p-1)/p·S·β; + 2(α + S·β) where n ≠ p = 2^⌊lg n⌋"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        ranks = ranks_after_folding(rank_count)
        chunk_count = len(ranks)
        rounds = self._insert_readiness_tokens((*_make_halving_rounds(ranks), *_make_doubling_rounds(ranks)))
        all_rounds = add_folding_rounds(
            rank_count, chunk_count, rounds, with_start_signals=not self.ranks_wait_for_tokens
        )
        return TransferSchedule(chunk_count=chunk_count, rounds=all_rounds)

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds.

        Of all ranks, p = 2^k (the largest power of two) send (p-1)/p of the vector twice. Each other rank sends its
        whole vector once and receives the total once.

        The empty message after folding adds no α: while a rank waits for it, its partner's half is already on its way.
        """
        power = len(ranks_after_folding(rank_count))
        latency_s = 2 * (power.bit_length() - 1) * self._messages_per_round * alpha_s
        transfer_s = 2 * (power - 1) / power * vector_bytes * beta_s_per_byte
        return latency_s + transfer_s + folding_time_s(rank_count, vector_bytes, alpha_s, beta_s_per_byte)


def _make_halving_rounds(ranks: Sequence[int]) -> Iterator[Round]:
    """Yield the rounds of the reduce-scatter.

    In each round, a rank sends the half of its chunks that its partner will own.
    """
    distance = len(ranks) // 2
    while distance:
        yield tuple(
            Transfer(rank, ranks[position ^ distance], *_find_block_of_chunk(position ^ distance, distance), "reduce")
            for position, rank in enumerate(ranks)
        )
        distance //= 2


def _make_doubling_rounds(ranks: Sequence[int]) -> Iterator[Round]:
    """Yield the rounds of the all-gather.

    In each round, a rank sends its partner all summed chunks that it already has.
    """
    distance = 1
    while distance < len(ranks):
        yield tuple(
            Transfer(rank, ranks[position ^ distance], *_find_block_of_chunk(position, distance), "copy")
            for position, rank in enumerate(ranks)
        )
        distance *= 2


def _find_block_of_chunk(chunk_number: int, chunks_per_block: int) -> tuple[int, int]:
    """Return (start, end) of the aligned block of chunks that contains a given chunk.

    A block has `chunks_per_block` chunks, and the given chunk has the number `chunk_number`.
    """
    first = chunk_number // chunks_per_block * chunks_per_block
    return first, first + chunks_per_block
