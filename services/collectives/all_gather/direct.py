"""All-gather without intermediate ranks."""

from typing import ClassVar, Literal

from services.collectives.all_gather.base import AllGather
from services.collectives.base import Transfer, TransferSchedule


class DirectAllGather(AllGather):
    """All-gather in which every rank sends its payload to each other rank.

    It has the fewest rounds and, with n(n-1), as many messages as the ring. Rank r starts with its neighbour r+1, so
    that no rank is the first target of all others.
    """

    kind: Literal["direct"] = "direct"
    closed_form: ClassVar[str] = "α + (n-1)P·β"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        transfers = tuple(
            Transfer(rank, (rank + distance) % rank_count, rank, rank + 1, "copy")
            for distance in range(1, rank_count)
            for rank in range(rank_count)
        )
        return TransferSchedule(chunk_count=rank_count, rounds=(transfers,) if transfers else ())

    def all_gather_time_s(self, rank_count: int, payload_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        return (alpha_s if rank_count > 1 else 0.0) + (rank_count - 1) * payload_bytes * beta_s_per_byte
