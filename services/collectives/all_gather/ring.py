"""All-gather along a ring.

Reference: Thakur, Rabenseifner & Gropp, IJHPCA 19, 2005.
"""

from typing import ClassVar, Literal

from services.collectives.all_gather.base import AllGather
from services.collectives.base import TransferSchedule
from services.collectives.data_exchange.all_gather import plan_ring_all_gather


class RingAllGather(AllGather):
    """All-gather in n-1 rounds, in each of which every rank passes a payload on to the next rank."""

    kind: Literal["ring"] = "ring"
    closed_form: ClassVar[str] = "(n-1)(α + P·β)"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        return plan_ring_all_gather((1,) * rank_count).model_copy(
            update={"chunk_sizes": ()}
        )  # equal chunks of any size

    def all_gather_time_s(self, rank_count: int, payload_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        return (rank_count - 1) * (alpha_s + payload_bytes * beta_s_per_byte)

    def latency_hidden_by_transfer_s(
        self, rank_count: int, payload_bytes: float, piece_bytes: float, data_transfer_s: float, path_latency_s: float
    ) -> float:
        """Return the seconds during which message latency and data transfer overlap.

        As in a ring all-reduce, it is (1 - 1/m)·min(latency, (1 - s/P)·transfer), here with m = n-1 hops, for pieces of
        s bytes.
        """
        if rank_count == 1 or not payload_bytes:
            return 0.0
        piece_share = min(1.0, piece_bytes / payload_bytes)
        return (1 - 1 / (rank_count - 1)) * min(path_latency_s, (1 - piece_share) * data_transfer_s)
