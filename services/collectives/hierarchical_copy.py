"""TensorFlow's HierarchicalCopyAllReduce, which sums along a fixed hierarchy of ranks.

Vectors are reduced along the hierarchy to one rank, and the total is broadcast back along it.
"""

from typing import ClassVar, Literal

from services.collectives.base import Transfer, TransferSchedule
from services.collectives.grouped import RankGroupCollective


class HierarchicalCopyAllReduce(RankGroupCollective):
    """All-reduce in which the first rank of each group sums the vectors of the group.

    One of these first ranks adds the sums of all groups. Totals go back to all. TensorFlow made it for machines whose
    groups of devices have few links between them.
    """

    kind: Literal["hierarchical_copy"] = "hierarchical_copy"
    closed_form: ClassVar[str] = "5α + 2(g-1 + G-1)S·β, G groups of at most g ranks"
    eager_closed_form: ClassVar[str] = "4α + 2(g-1 + G-1)S·β, G groups of at most g ranks"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        groups = self.rank_groups(rank_count)
        inside_groups = tuple((rank, group[0]) for group in groups for rank in group[1:])
        between_groups = tuple((group[0], groups[0][0]) for group in groups[1:])
        levels = [pairs for pairs in (inside_groups, between_groups) if pairs]
        reductions = (tuple(Transfer(child, parent, 0, 1, "reduce") for child, parent in pairs) for pairs in levels)
        copies = (tuple(Transfer(parent, child, 0, 1, "copy") for child, parent in pairs) for pairs in reversed(levels))
        return TransferSchedule(rounds=tuple(self._insert_tokens((*reductions, *copies))))

    def explain_inapplicable_form(self, rank_count: int, message_count: int) -> str:  # noqa: ARG002 - any vector
        if len(set(map(len, self.rank_groups(rank_count)))) > 1:
            return "smaller groups end a sum earlier, so their next vectors arrive before those of larger groups"
        return ""

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds.

        On each level, the link of the busiest leader carries one vector for each rank below the leader. With a
        rendezvous, the first leader waits for tokens of the other leaders before it sends to its own group.
        """
        groups = self.rank_groups(rank_count)
        senders_by_level = [count - 1 for count in (max(map(len, groups)), len(groups)) if count > 1]
        token_s = alpha_s * (self.ranks_wait_for_tokens and len(senders_by_level) > 1)
        return token_s + 2 * sum(alpha_s + count * vector_bytes * beta_s_per_byte for count in senders_by_level)
