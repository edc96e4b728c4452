"""Sum of vectors in which a collective adds compressed vectors as they are."""

from dataclasses import dataclass

import numpy as np

from services.collectives import Collective, NetworkAndModelSizes, TransferSchedule
from services.collectives.execution.executor import GroupMember
from services.collectives.execution.whole_payloads import PayloadSumLayout, add_payloads
from services.compressors import CompressedPayload, CompressorState
from services.runtime.device import ComputeDevice
from services.schema.arrays import Vector
from services.strategies.cost_model import CostModel
from services.strategies.vector_sums.base import SingleStageSum, Summand


@dataclass(frozen=True)
class AddedPayloads(SingleStageSum):
    """Sum in which every rank compresses its weighted vector once, and decompresses the sum of all payloads.

    The compressor encodes the same entries on all ranks. The collective adds only the floating-point numbers of the
    payloads.
    """

    collective: Collective

    @property
    def closed_form(self) -> str:
        return f"{self.collective.all_reduce_time_formula}, S: numbers of a payload"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        return self.collective.plan_transfers(rank_count)

    def _added_entries(self, rank_count: int, entry_count: int, dtype: str) -> tuple[int, int]:
        """Return the length of the vector that the collective adds, and the bytes of one entry."""
        layout = PayloadSumLayout.of(self.compressor.payload_dtypes_and_sizes(entry_count, dtype))
        return layout.total_entry_count(rank_count), np.dtype(layout.dtype).itemsize

    def sent_bytes_by_rank(self, rank_count: int, entry_count: int, dtype: str) -> tuple[int, ...]:
        added, entry_bytes = self._added_entries(rank_count, entry_count, dtype)
        return self.plan_transfers(rank_count).payload_bytes_by_rank(rank_count, added, lambda size: size * entry_bytes)

    def divided_bytes(self, cost_model: CostModel) -> int:
        """Return the bytes of the numbers that the collective adds."""
        added, entry_bytes = self._added_entries(len(cost_model.workers), cost_model.entries, cost_model.dtype)
        return round(added * entry_bytes * cost_model.payload_scale)

    def transfer_time_s(self, cost_model: CostModel, beta_s_per_byte: float) -> float:
        size_bytes = self.divided_bytes(cost_model)
        return self.collective.all_reduce_time_s(len(cost_model.workers), size_bytes, 0.0, beta_s_per_byte)

    def latency_hidden_by_transfer_s(
        self, cost_model: CostModel, piece_bytes: float, data_transfer_s: float, path_latency_s: float
    ) -> float:
        ranks, size_bytes = len(cost_model.workers), self.divided_bytes(cost_model)
        return self.collective.latency_hidden_by_transfer_s(
            ranks, size_bytes, piece_bytes, data_transfer_s, path_latency_s
        )

    def explain_inapplicable_form(self, rank_count: int, message_count: int) -> str:
        return self.collective.explain_inapplicable_form(rank_count, message_count)

    def sizes_of_added_vector(self, model_sizes: NetworkAndModelSizes, cost_model: CostModel) -> NetworkAndModelSizes:
        """Return the sizes with the numbers of a payload as the only array."""
        added, entry_bytes = self._added_entries(len(cost_model.workers), cost_model.entries, cost_model.dtype)
        bytes_on_wire = entry_bytes * cost_model.payload_scale
        return model_sizes.model_copy(update={"array_sizes": (added,), "entry_bytes": bytes_on_wire})

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
        own = summand.vector * summand.vector.dtype.type(summand.weight)
        if not schedule.rounds:  # a single worker sends nothing, so nothing is compressed
            return own, compressor_state
        payload, state_after = self.compressor.compress(own, compressor_state)
        on_host = CompressedPayload(tuple(device.to_host(array) for array in payload.arrays), payload.entries)
        total = await add_payloads(member, schedule, number, on_host)
        on_device = CompressedPayload(tuple(device.to_device(array) for array in total.arrays), total.entries)
        return self.compressor.decompress(on_device).astype(own.dtype, copy=False), state_after
