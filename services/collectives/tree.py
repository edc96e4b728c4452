"""Binomial tree: reduce to rank 0, then broadcast.

Reference: Thakur, Rabenseifner & Gropp, IJHPCA 19, 2005.
"""

from typing import ClassVar, Literal

from services.collectives.base import Transfer, TransferSchedule
from services.collectives.rendezvous import OptionalRendezvousCollective


class BinomialTree(OptionalRendezvousCollective):
    """All-reduce along a binomial tree: reduce to rank 0, then broadcast the total along the same tree.

    In each round of the reduce, half of the remaining ranks send their sums to the other half. As in the textbook,
    whole vectors are sent one after the other.
    """

    kind: Literal["tree"] = "tree"
    closed_form: ClassVar[str] = "(⌊lg n⌋ + 2⌈lg n⌉ - 1)α + 2⌈lg n⌉S·β"
    eager_closed_form: ClassVar[str] = "2⌊lg n⌋α + 2⌈lg n⌉S·β"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        levels = [
            [(rank, rank - distance) for rank in range(distance, rank_count, 2 * distance)]
            for distance in (1 << bit for bit in range((rank_count - 1).bit_length()))
        ]
        reductions = (tuple(Transfer(child, parent, 0, 1, "reduce") for child, parent in pairs) for pairs in levels)
        copies = (tuple(Transfer(parent, child, 0, 1, "copy") for child, parent in pairs) for pairs in reversed(levels))
        return TransferSchedule(rounds=tuple(self._insert_tokens((*reductions, *copies))))

    def explain_inapplicable_form(self, rank_count: int, message_count: int) -> str:  # noqa: ARG002 - any vector
        if rank_count & (rank_count - 1):
            return f"{rank_count} ranks are not a power of two, so consecutive all-reduces overlap"
        return ""

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds.

        An all-reduce over n ranks has ⌈lg n⌉ rounds of reduce, and as many of broadcast. Rank 0 waits for a
        token between its sends.

        Where n is not a power of two, the textbook counts one more α in each direction: there, no rank sends before its
        round. Here a rank without children sends at once, and so does rank 0 without a rendezvous.
        """
        full_levels, rounds = rank_count.bit_length() - 1, (rank_count - 1).bit_length()
        broadcast_messages = 2 * rounds - 1 if self.ranks_wait_for_tokens and rounds else full_levels
        return (full_levels + broadcast_messages) * alpha_s + 2 * rounds * vector_bytes * beta_s_per_byte
