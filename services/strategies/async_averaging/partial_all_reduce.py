"""Partial all-reduce strategy: the workers that are ready first average their parameters in a group.

Q. Luo, J. He, Y. Zhuo, X. Qian, "Prague: High-performance heterogeneity-aware asynchronous decentralized training",
ASPLOS 2020. X. Miao et al., "Heterogeneity-aware distributed machine learning training via partial reduce", SIGMOD
2021.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from pydantic import Field, PositiveInt

from services.collectives import Ring, TransferSchedule
from services.schema.conflicts import KeyConflict
from services.strategies.async_averaging.group_client import GroupClient
from services.strategies.async_averaging.group_prediction import predict_group_step, static_group_schedule
from services.strategies.async_averaging.partial_all_reduce_worker import PartialAllReduceWorker
from services.strategies.base import (
    IDENTITY_COMPRESSOR,
    BytesPerStep,
    ExchangePattern,
    ScenarioSizes,
    SinglePhaseStrategy,
    WorkerContext,
)
from services.strategies.base.partner_byte_bounds import ByteRange, PartnerByteBounds
from services.strategies.base.training_quality import ASYNCHRONOUS_REASON, TrainingQuality, unguarded_quality
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.vector_sums.partial_sums import PartialSums

GROUP_SUM = PartialSums(IDENTITY_COMPRESSOR, Ring())
DEFAULT_HISTORY_FACTOR = 2  # of the default history: groups for each group that a connected graph needs


class PartialAllReduce(SinglePhaseStrategy):
    """Partial all-reduce: after each step, the next `group_size` ready workers average their parameters with a ring.

    Each worker updates its own parameters with its own gradient and its own optimiser. The members of a group count the
    same, so averaging does not change the mean of all workers' parameters. With a group of all workers, training equals
    `local_sgd` with a period of 1 if all shares of a batch are equal. Evaluations use the parameters of worker 0 after
    its last average; the result of the run is the mean over all workers. We differ from Prague, whose groups are
    random, and from Miao et al., who weight members by their age in one variant.
    """

    kind: Literal["partial_all_reduce"] = "partial_all_reduce"
    group_size: int = Field(2, ge=2, description="workers that average their parameters with each other (g)")
    connect_within: PositiveInt | None = Field(
        None,
        description="number of last groups that should connect all workers; while they do not, a group joins workers "
        "that they do not connect; default: 2⌈(workers - 1)/(group_size - 1)⌉",
    )

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        workers = scenario_sizes.workers
        if workers == 1:
            return
        if self.group_size > workers:
            why = f"a group of {self.group_size} is larger than the number of workers ({workers})"
            yield KeyConflict(("group_size",), f"{why}; use at most {workers}")
        elif self.connect_within is not None and self.connect_within < self._least_connecting_groups(workers):
            least = self._least_connecting_groups(workers)
            why = f"{self.connect_within} groups of {self.group_size} cannot connect {workers} workers"
            yield KeyConflict(("connect_within",), f"{why}; use at least {least}")

    def _least_connecting_groups(self, worker_count: int) -> int:
        """Return the smallest number of groups that can connect all workers."""
        return max(1, ceil((worker_count - 1) / (self.group_size - 1)))

    def _members(self, worker_count: int) -> int:
        """Return the number of workers in a group: all, if they are fewer than the declared number."""
        return min(self.group_size, worker_count)

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(
            is_synchronous=False, has_equal_replicas=False, partner_byte_bounds=GroupByteBounds(self.group_size)
        )

    def describe_quality(self) -> TrainingQuality:
        return unguarded_quality(self.kind, ASYNCHRONOUS_REASON)

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        """Return the transfers of a step in which each group consists of workers with neighbouring ranks.

        The groups of a run are not known before, but in a step of equal workers they send as much as these.
        """
        return static_group_schedule(worker_count, self._members(worker_count))

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        """Return the mean payload bytes: 2(g-1)/g of the vector. Single groups differ by the rounding of chunks."""
        members = self._members(worker_count)
        group_bytes = sum(GROUP_SUM.sent_bytes_by_rank(members, parameter_count, dtype))
        return BytesPerStep(workers=(group_bytes / members,) * worker_count)

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        return predict_group_step(GROUP_SUM, cost_model, self._members(len(cost_model.workers)))

    def create_worker_algorithm(self, worker_context: WorkerContext) -> PartialAllReduceWorker:
        workers = len(worker_context.workers)
        history = self.connect_within or DEFAULT_HISTORY_FACTOR * self._least_connecting_groups(workers)
        client = GroupClient.of_worker(worker_context, self._members(workers), history)
        return PartialAllReduceWorker(worker_context, GROUP_SUM, client)


@dataclass(frozen=True)
class GroupByteBounds(PartnerByteBounds):
    """Choice of groups: the workers that are ready first."""

    group_size: int

    def bound_sent_bytes(
        self,
        step_counts: Sequence[int],
        seed: int,  # noqa: ARG002 - speeds choose the groups
        entry_count: int,
        entry_bytes: float,
    ) -> tuple[ByteRange, ...]:
        """Return the bounds of the bytes: those of full groups in all steps but the last, and of none to one in that.

        The chunks of a ring differ by one entry at most. A worker sends each chunk twice but for two chunks, so in a
        step it may send two entries more or less than the mean.
        """
        members = min(self.group_size, len(step_counts))
        mean_bytes = 2 * (members - 1) / members * entry_count * entry_bytes
        rounding_bytes = 2 * entry_bytes if entry_count % members else 0.0
        return tuple(
            ByteRange((steps - 1) * (mean_bytes - rounding_bytes), steps * (mean_bytes + rounding_bytes))
            if steps
            else ByteRange(0.0, 0.0)
            for steps in step_counts
        )
