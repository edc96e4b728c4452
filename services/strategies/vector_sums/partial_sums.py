"""Sum of vectors in which every hop of a collective decompresses, adds and compresses again."""

from dataclasses import dataclass
from typing import ClassVar

from services.collectives import Collective, TransferSchedule
from services.collectives.execution.executor import GroupMember, all_reduce
from services.compressors import CompressorState
from services.runtime.device import ComputeDevice
from services.schema.arrays import Vector
from services.strategies.cost_model import CostModel
from services.strategies.vector_sums.base import SingleStageSum, Summand


@dataclass(frozen=True)
class PartialSums(SingleStageSum):
    """Sum in which ranks send partial sums of vectors, in the compressor's number format."""

    collective: Collective

    adds_in_host_memory: ClassVar[bool] = True
    is_for_differences: ClassVar[bool] = False

    @property
    def closed_form(self) -> str:
        return self.collective.all_reduce_time_formula

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        return self.collective.plan_transfers(rank_count)

    def sent_bytes_by_rank(self, rank_count: int, entry_count: int, dtype: str) -> tuple[int, ...]:
        return self.plan_transfers(rank_count).payload_bytes_by_rank(
            rank_count, entry_count, lambda size: self.compressor.compressed_size_bytes(size, dtype)
        )

    def divided_bytes(self, cost_model: CostModel) -> int:
        """Return the bytes of the vector before compression, by which pieces are cut."""
        return cost_model.vector_bytes

    def transfer_time_s(self, cost_model: CostModel, beta_s_per_byte: float) -> float:
        compressed_bytes = self.compressor.compressed_size_bytes(cost_model.entries, cost_model.dtype)
        size_bytes = compressed_bytes * cost_model.payload_scale
        return self.collective.all_reduce_time_s(len(cost_model.workers), size_bytes, 0.0, beta_s_per_byte)

    def latency_hidden_by_transfer_s(
        self, cost_model: CostModel, piece_bytes: float, data_transfer_s: float, path_latency_s: float
    ) -> float:
        return self.collective.latency_hidden_by_transfer_s(
            len(cost_model.workers), cost_model.vector_bytes, piece_bytes, data_transfer_s, path_latency_s
        )

    def explain_inapplicable_form(self, rank_count: int, message_count: int) -> str:
        return self.collective.explain_inapplicable_form(rank_count, message_count)

    async def add_vectors(
        self,
        member: GroupMember,
        schedule: TransferSchedule,
        number: int,
        summand: Summand,
        compressor_state: CompressorState,
        device: ComputeDevice,
    ) -> tuple[Vector, CompressorState]:
        """Return the weighted sum, in host memory, and the unchanged state: this compressor has none."""
        own = device.to_host(summand.vector) if summand.host_vector is None else summand.host_vector
        total = own * own.dtype.type(summand.weight)
        transport, node_names, rank, _ = member
        await all_reduce(transport, node_names, rank, schedule, number, total, self.compressor)
        return total, compressor_state
