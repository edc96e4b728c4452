"""Base class of all-gather algorithms: a schedule of transfers between ranks, and a closed form of its run time."""

from abc import ABC, abstractmethod
from typing import ClassVar

from services.collectives.base import TransferSchedule
from services.schema.component import ScenarioComponent


class AllGather(ScenarioComponent, ABC):
    """Algorithm after which every rank has the payloads of all ranks, which have equal sizes.

    The schedule cuts the concatenated payloads into one chunk per rank. Every rank sends n-1 payloads in all.
    """

    closed_form: ClassVar[str]  # formula of `all_gather_time_s`, as reports print it; P is the size of a payload

    @abstractmethod
    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        """Return the schedule of all transfers among `rank_count` ranks, of which rank k contributes chunk k.

        The schedule for a single rank has no transfers.
        """

    @abstractmethod
    def all_gather_time_s(self, rank_count: int, payload_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time in seconds, computed by the closed form.

        Args:
            rank_count: number of ranks, n.
            payload_bytes: bytes of the payload of one rank, P.
            alpha_s: seconds of latency per message, α.
            beta_s_per_byte: seconds per byte on a link in one direction, β; links are full duplex.
        """

    def latency_hidden_by_transfer_s(
        self,
        rank_count: int,  # noqa: ARG002 - only pipelines hide latency
        payload_bytes: float,  # noqa: ARG002
        piece_bytes: float,  # noqa: ARG002
        data_transfer_s: float,  # noqa: ARG002
        path_latency_s: float,  # noqa: ARG002
    ) -> float:
        """Return the seconds of message latency that overlap with the transfer of other pieces.

        Return 0 without pipelining.

        Args:
            rank_count: number of ranks.
            payload_bytes: bytes of the payload of one rank.
            piece_bytes: bytes of a piece.
            data_transfer_s: run time by the closed form with α = 0, on the real network.
            path_latency_s: latency of the longest chain of transfers, on the real network.
        """
        return 0.0
