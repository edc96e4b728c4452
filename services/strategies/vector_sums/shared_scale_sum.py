"""Sum of vectors that all workers quantise with the same steps, so that whole numbers can be added at every hop."""

from dataclasses import dataclass

import numpy as np

from services.collectives import Collective, NetworkAndModelSizes, TransferSchedule
from services.collectives.execution.executor import GroupMember, run_transfers
from services.compressors import CompressorState, IdentityCompressor, Int8
from services.compressors.encoding.blocks import count_buckets
from services.compressors.encoding.levels import (
    MAX_LEVEL,
    compute_steps,
    find_bucket_peaks,
    multiply_rows,
    round_to_given_steps,
)
from services.compressors.unselectable.int16_levels import LARGEST_NUMBER, Int16Levels
from services.runtime.device import ComputeDevice
from services.schema.arrays import HostArray, Vector, without_divergence_warnings
from services.strategies.cost_model import CostModel
from services.strategies.vector_sums.base import Summand, SumStage, VectorSum
from services.strategies.vector_sums.partial_sums import PartialSums

MAX_RANKS = LARGEST_NUMBER // MAX_LEVEL  # whose sum of levels fits into the whole numbers on the wire
# Levels have the numbers of peaks in a channel of their own, as the factors of low-rank sums.
LEVELS_CHANNEL = 1


@dataclass(frozen=True)
class SharedScaleSum(VectorSum):
    """Sum in which a collective finds the largest magnitude of each bucket, and then adds levels as whole numbers.

    The step of a bucket is the largest magnitude among all weighted vectors, divided by 127. So levels of all ranks
    count the same steps, and their partial sums are exact in 16 bits, whatever the route. The sum is multiplied by the
    steps once. With stochastic rounding, its mean is the sum of the vectors, its error is below n steps, and its
    variance at most n·step²/4 on n ranks.
    """

    stage_count = 2  # largest magnitudes and levels

    collective: Collective
    int8: Int8

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        return self.collective.plan_transfers(rank_count)

    def stages(self, entry_count: int) -> tuple[SumStage, ...]:
        return (
            SumStage(PartialSums(IdentityCompressor(), self.collective), count_buckets(entry_count, self.int8.bucket)),
            SumStage(PartialSums(Int16Levels(), self.collective), entry_count),
        )

    def sent_bytes_by_rank(self, rank_count: int, entry_count: int, dtype: str) -> tuple[int, ...]:
        by_stage = [
            stage_sum.sent_bytes_by_rank(rank_count, count, dtype) for stage_sum, count in self.stages(entry_count)
        ]
        return tuple(map(sum, zip(*by_stage, strict=True)))

    def sizes_of_added_vector(self, model_sizes: NetworkAndModelSizes, cost_model: CostModel) -> NetworkAndModelSizes:
        """Return the sizes with the vector of levels as the only array."""
        return model_sizes.model_copy(update={"array_sizes": (cost_model.entries,)})

    async def add_vectors(
        self,
        member: GroupMember,
        schedule: TransferSchedule,
        number: int,
        summand: Summand,
        compressor_state: CompressorState,
        device: ComputeDevice,
    ) -> tuple[Vector, CompressorState]:
        """Return the weighted sum, in host memory, and the state after rounding this worker's vector."""
        own = summand.vector * summand.vector.dtype.type(summand.weight)
        if not schedule.rounds:  # a single worker sends nothing, so nothing is compressed
            return own, compressor_state
        bucket = self.int8.bucket
        with without_divergence_warnings():
            peaks = np.array(device.to_host(find_bucket_peaks(own, bucket)), own.dtype.name)
            await run_transfers(member, schedule, number, peaks, combine_entries=_keep_largest)
            steps = compute_steps(peaks, MAX_LEVEL)
            generator = None if compressor_state is None else compressor_state.create_generator(own)
            levels = round_to_given_steps(own, bucket, device.to_device(steps), generator)
        total = np.array(device.to_host(levels), own.dtype.name)
        in_channel = member._replace(channel=member.channel + LEVELS_CHANNEL)
        await run_transfers(in_channel, schedule, number, total, Int16Levels())
        with without_divergence_warnings():
            multiply_rows(total, bucket, steps)
        return total, None if compressor_state is None else compressor_state.advance()


def _keep_largest(received: HostArray, own: HostArray) -> None:
    """Replace own entries by larger ones that were received, in place; NaN is the largest."""
    np.maximum(own, received, out=own)
