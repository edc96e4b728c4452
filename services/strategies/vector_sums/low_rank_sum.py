"""Sum of vectors whose matrices are replaced by factors of low rank."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np

from services.collectives import Collective, NetworkAndModelSizes, TransferSchedule
from services.collectives.execution.executor import GroupMember, run_transfers
from services.compressors import CompressorSeed
from services.runtime.device import ComputeDevice
from services.schema.arrays import Array, HostArray, Vector, array_namespace, without_divergence_warnings
from services.strategies.cost_model import CostModel
from services.strategies.vector_sums.base import Summand, SumStage, VectorSum
from services.strategies.vector_sums.low_rank_factors import (
    LowRankLayout,
    draw_right_factor,
    multiply_factors,
    orthonormalise,
)
from services.strategies.vector_sums.partial_sums import PartialSums
from services.strategies.vector_sums.power_sgd import PowerSgd

# Right factors have the numbers of left factors in a channel of their own. So the numbers of messages are those of
# steps, as in other strategies, and do not decrease at a strategy switch.
RIGHT_FACTOR_CHANNEL = 1


class LowRankState(NamedTuple):
    """State of a worker between two low-rank sums."""

    seed: int  # of the trial, equal on all workers
    residual: Vector | None = None  # of this worker, with its weight; 0 in uncompressed ranges; None: no sum yet
    right_factors: tuple[HostArray, ...] = ()  # of the sum before, equal on all workers; empty: no sum yet


@dataclass(frozen=True)
class LowRankSum(VectorSum):
    """Sum in which a collective adds left factors and uncompressed ranges, and then right factors.

    Workers compute factors on their devices. They add and orthonormalise factors in host memory, where all workers get
    the same bits from the same sum.
    """

    stage_count = 2  # left and right factors

    collective: Collective
    power_sgd: PowerSgd

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        return self.collective.plan_transfers(rank_count)

    def stages(self, entry_count: int) -> tuple[SumStage, ...]:
        layout = self.power_sgd.layout_of_vector(entry_count)
        sum_of_factors = PartialSums(self.compressor, self.collective)
        counts = (layout.left_entry_count, layout.right_entry_count)
        return tuple(SumStage(sum_of_factors, count) for count in counts if count)

    def sent_bytes_by_rank(self, rank_count: int, entry_count: int, dtype: str) -> tuple[int, ...]:
        by_stage = [
            stage_sum.sent_bytes_by_rank(rank_count, count, dtype) for stage_sum, count in self.stages(entry_count)
        ]
        return tuple(map(sum, zip(*by_stage, strict=True)))

    def sizes_of_added_vector(self, model_sizes: NetworkAndModelSizes, cost_model: CostModel) -> NetworkAndModelSizes:
        """Return the sizes with the longer one of the two added vectors as the only array."""
        longest = max(stage.entry_count for stage in self.stages(cost_model.entries))
        return model_sizes.model_copy(update={"array_sizes": (longest,)})

    def init_state(self, params: Vector, seed: CompressorSeed) -> LowRankState:  # noqa: ARG002 - any length
        return LowRankState(seed.trial_seed)

    async def add_vectors(
        self,
        member: GroupMember,
        schedule: TransferSchedule,
        number: int,
        summand: Summand,
        compressor_state: LowRankState,
        device: ComputeDevice,
    ) -> tuple[Vector, LowRankState]:
        """Return the approximate weighted sum, on the device, and the worker's state for the next sum."""
        dtype = summand.vector.dtype
        weight, layout = dtype.type(summand.weight), self.power_sgd.layout_of_vector(summand.vector.size)
        if not schedule.rounds:  # a single worker sends nothing, so nothing is compressed
            return summand.vector * weight, compressor_state
        total = await _LowRankExchange(member, schedule, number, device, layout).run(
            self._add_residual(summand.vector * weight, compressor_state),
            self._choose_right_factors(layout, compressor_state, number, dtype),
        )
        residual = _compute_residual(layout, total.corrected, total.vector, weight)
        return total.vector, LowRankState(compressor_state.seed, residual, total.right_factors)

    def _add_residual(self, own: Vector, state: LowRankState) -> Vector:
        with without_divergence_warnings():
            return own if state.residual is None else own + state.residual

    def _choose_right_factors(
        self, layout: LowRankLayout, state: LowRankState, number: int, dtype: np.dtype[np.floating]
    ) -> list[HostArray]:
        """Return the right factors with which the sum with this number begins, with orthonormal columns.

        Columns that are 0, after a gradient of zeros or without a factor of the sum before, are drawn.
        """
        previous = state.right_factors if self.power_sgd.warm_start else ()
        factors = []
        for index, array in enumerate(layout.factored):
            factor = previous[index] if previous else np.zeros((array.columns, array.rank))
            is_zero = (factor == 0).all(axis=0)
            if is_zero.any():
                factor = np.where(is_zero, draw_right_factor(array, index, state.seed, number), factor)
            with without_divergence_warnings():
                factors.append(orthonormalise(factor).astype(dtype, copy=False))
        return factors


class _LowRankTotal(NamedTuple):
    """Result of the two collectives of a low-rank sum."""

    corrected: Vector  # weighted vector of this worker, with its residual
    vector: Vector  # approximate sum over all workers
    right_factors: tuple[HostArray, ...]


@dataclass(frozen=True)
class _LowRankExchange:
    """Exchange of the factors of one sum with all other workers."""

    member: GroupMember
    schedule: TransferSchedule
    number: int  # of the sum
    device: ComputeDevice
    layout: LowRankLayout

    async def run(self, corrected: Vector, start_factors: Sequence[HostArray]) -> _LowRankTotal:
        """Return the sum of the vectors `corrected` of all workers, from the given right factors on."""
        factored, uncompressed = self.layout.factored, self.layout.uncompressed
        lefts = (
            array.matrix(corrected) @ self.device.to_device(factor)
            for array, factor in zip(factored, start_factors, strict=True)
        )
        ranges = [each.view(corrected) for each in uncompressed]
        summed = await self._sum_arrays(chain(ranges, lefts), self.member)  # which computes the factors
        with without_divergence_warnings():
            left_factors = [self.device.to_device(orthonormalise(left)) for left in summed[len(ranges) :]]
        rights = (array.matrix(corrected).T @ factor for array, factor in zip(factored, left_factors, strict=True))
        right_factors = await self._sum_arrays(rights, self.member._replace(channel=RIGHT_FACTOR_CHANNEL))
        total = array_namespace(corrected).empty_like(corrected)
        for vector_range, entries in zip(uncompressed, summed, strict=False):
            vector_range.view(total)[:] = self.device.to_device(entries)
        with without_divergence_warnings():
            for array, left, right in zip(factored, left_factors, right_factors, strict=True):
                array.matrix(total)[:] = multiply_factors(left, self.device.to_device(right))
        return _LowRankTotal(corrected, total, tuple(right_factors))

    async def _sum_arrays(self, arrays: Iterable[Array], member: GroupMember) -> list[HostArray]:
        """Return the sum of each array over all workers, in host memory, by one collective."""
        with without_divergence_warnings():
            own = [self.device.to_host(array) for array in arrays]
        if not own:
            return []
        total = np.concatenate([array.ravel() for array in own])
        await run_transfers(member, self.schedule, self.number, total)
        bounds = pairwise(accumulate((array.size for array in own), initial=0))
        return [total[start:stop].reshape(array.shape) for array, (start, stop) in zip(own, bounds, strict=True)]


def _compute_residual(layout: LowRankLayout, corrected: Vector, total: Vector, weight: np.floating) -> Vector:
    """Return what this worker's share of the total lacks of its own vector; 0 in uncompressed ranges."""
    with without_divergence_warnings():
        residual = corrected - total * weight
    for vector_range in layout.uncompressed:
        vector_range.view(residual)[:] = 0
    return residual
