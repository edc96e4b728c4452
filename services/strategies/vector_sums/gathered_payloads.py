"""Sum of vectors for which every rank receives the compressed vectors of all ranks."""

from dataclasses import dataclass

from services.collectives import TransferSchedule
from services.collectives.all_gather import AllGather
from services.collectives.execution.executor import GroupMember
from services.collectives.execution.whole_payloads import gather_payloads
from services.compressors import CompressedPayload, CompressorState, payload_to_bytes, split_wire_bytes
from services.runtime.device import ComputeDevice
from services.schema.arrays import Vector, array_namespace
from services.strategies.cost_model import CostModel
from services.strategies.vector_sums.base import SingleStageSum, Summand


@dataclass(frozen=True)
class GatheredPayloads(SingleStageSum):
    """Sum in which every rank compresses its weighted vector once, and decompresses the payloads of all ranks.

    All ranks add the decompressed vectors in the order of the ranks. They compress and add on their devices.
    """

    gather: AllGather

    @property
    def closed_form(self) -> str:
        return self.gather.closed_form

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        return self.gather.plan_transfers(rank_count)

    def sent_bytes_by_rank(self, rank_count: int, entry_count: int, dtype: str) -> tuple[int, ...]:
        gathered_bytes = rank_count * self.compressor.compressed_size_bytes(entry_count, dtype)
        return self.plan_transfers(rank_count).payload_bytes_by_rank(rank_count, gathered_bytes, int)

    def divided_bytes(self, cost_model: CostModel) -> int:
        """Return the bytes of the payloads of all ranks, which are the chunks of the schedule."""
        return round(len(cost_model.workers) * self._payload_bytes(cost_model))

    def transfer_time_s(self, cost_model: CostModel, beta_s_per_byte: float) -> float:
        ranks, payload_bytes = len(cost_model.workers), self._payload_bytes(cost_model)
        return self.gather.all_gather_time_s(ranks, payload_bytes, 0.0, beta_s_per_byte)

    def latency_hidden_by_transfer_s(
        self, cost_model: CostModel, piece_bytes: float, data_transfer_s: float, path_latency_s: float
    ) -> float:
        ranks, payload_bytes = len(cost_model.workers), self._payload_bytes(cost_model)
        return self.gather.latency_hidden_by_transfer_s(
            ranks, payload_bytes, piece_bytes, data_transfer_s, path_latency_s
        )

    def _payload_bytes(self, cost_model: CostModel) -> float:
        """Return the bytes on the wire of the payload of one rank."""
        compressed_bytes = self.compressor.compressed_size_bytes(cost_model.entries, cost_model.dtype)
        return compressed_bytes * cost_model.payload_scale

    async def add_vectors(
        self,
        member: GroupMember,
        schedule: TransferSchedule,
        number: int,
        summand: Summand,
        compressor_state: CompressorState,
        device: ComputeDevice,
    ) -> tuple[Vector, CompressorState]:
        """Return the weighted sum, on the device, and the state after compressing this worker's vector."""
        dtype = summand.vector.dtype
        own = summand.vector * dtype.type(summand.weight)
        if not schedule.rounds:  # a single worker sends nothing, so nothing is compressed
            return own, compressor_state
        payload, state_after = self.compressor.compress(own, compressor_state)
        own_bytes = payload_to_bytes(payload, device.to_host)
        total = array_namespace(own).zeros(own.size, dtype)
        for wire_bytes in await gather_payloads(member, schedule, number, own_bytes):
            received = split_wire_bytes(wire_bytes, payload.formats, own.size)  # all ranks are in the same format stage
            arrays = tuple(device.to_device(array) for array in received.arrays)
            total += self.compressor.decompress(CompressedPayload(arrays, own.size))
        return total, state_after
