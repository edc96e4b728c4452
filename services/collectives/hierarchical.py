"""Hierarchical all-reduce with two levels, as in Horovod.

Data moves inside racks, between racks, and inside racks again.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from services.collectives.base import Transfer, TransferSchedule
from services.collectives.grouped import RankGroupCollective
from services.collectives.ring import make_ring_rounds


class HierarchicalAllReduce(RankGroupCollective):
    """All-reduce in three phases: inside groups of ranks, between groups, inside groups again.

    The phases are a reduce-scatter inside each group, a ring between groups for each slice of the vector, and an
    all-gather inside each group. Each rank of a group owns the sum of one slice. The owners of a slice, one per group,
    form a ring. A group sends 2(G-1)/G of the vector to other groups, whatever its size. Inside a group, slices go
    directly to their owners, so α counts once where a ring would count it g-1 times. The smallest group determines the
    number of slices; further ranks of larger groups own none.
    """

    kind: Literal["hierarchical"] = "hierarchical"
    closed_form: ClassVar[str] = "2(2α + (g-1)S/l·β) + 2(G-1)(α + S/(lG)·β), G groups of l to g ranks"
    eager_closed_form: ClassVar[str] = "2(α + (g-1)S/l·β) + 2(G-1)(α + S/(lG)·β), G groups of l to g ranks"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        groups = self.rank_groups(rank_count)
        slice_count, chunks_per_slice = min(map(len, groups)), len(groups)
        reduce_scatter = tuple(
            transfer for group in groups for transfer in _reduce_scatter_transfers(group, slice_count, chunks_per_slice)
        )
        rings = [
            list(make_ring_rounds([group[k] for group in groups], k * chunks_per_slice)) for k in range(slice_count)
        ]
        between_groups = (sum(same_hop, ()) for same_hop in zip(*rings, strict=True))
        rounds = (reduce_scatter, *between_groups, tuple(map(_reverse_transfer, reduce_scatter)))
        non_empty = [transfers for transfers in rounds if transfers]
        return TransferSchedule(
            chunk_count=slice_count * chunks_per_slice,
            rounds=tuple(self._insert_tokens(non_empty, confirm_readiness=True)),
        )

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds.

        The run time is that of two exchanges inside the largest group, plus that of the rings between groups. All
        slices move at the same time over links of their own. With a rendezvous, one token precedes the first transfer
        out of a group and one the first transfer back into it.
        """
        sizes = [len(group) for group in self.rank_groups(rank_count)]
        slice_s = vector_bytes / min(sizes) * beta_s_per_byte
        messages = 1 + (self.ranks_wait_for_tokens and len(sizes) > 1)
        inside_s = 2 * ((max(sizes) > 1) * messages * alpha_s + (max(sizes) - 1) * slice_s)
        return inside_s + 2 * (len(sizes) - 1) * (alpha_s + slice_s / len(sizes))


def _reduce_scatter_transfers(ranks: Sequence[int], slice_count: int, chunks_per_slice: int) -> Iterator[Transfer]:
    """Yield the transfers of a reduce-scatter inside one group of ranks.

    Afterwards, the k-th rank of the group holds the group's sum of slice k of the vector. Each rank sends to the next
    rank of the group first, then to the rank after that, and so on.
    """
    for turn in range(1, len(ranks)):
        for position, rank in enumerate(ranks):
            owner = (position + turn) % len(ranks)
            if owner < slice_count:
                yield Transfer(rank, ranks[owner], owner * chunks_per_slice, (owner + 1) * chunks_per_slice, "reduce")


def _reverse_transfer(transfer: Transfer) -> Transfer:
    """Return the transfer in the opposite direction, which carries the total of the same chunks."""
    return transfer._replace(source=transfer.target, target=transfer.source, kind="copy")
