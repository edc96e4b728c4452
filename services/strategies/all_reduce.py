"""All-reduce strategy: every worker receives the sum of all gradients and updates its own replica."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Literal, Self

from pydantic import Field

from services.cluster.links.fluid_link import MAX_FLUID_MESSAGE_BYTES, MIN_FLUID_MESSAGES_PER_VECTOR
from services.collectives import AnyCollective, NetworkAndModelSizes, Ring, TransferSchedule
from services.collectives.base import RankPair
from services.collectives.execution.executor import all_reduce
from services.compressors import AnyCompressor, Compressor, IdentityCompressor
from services.learning.batch_balance import AnyBatchBalance, UniformBalance
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.schema.conflicts import KeyConflict
from services.strategies.balance_conflicts import BALANCE_DESCRIPTION, find_balance_conflicts
from services.strategies.base import (
    BytesPerStep,
    ExchangePattern,
    Gradient,
    ScenarioSizes,
    SinglePhaseStrategy,
    StepResult,
    WorkerAlgorithm,
    WorkerContext,
    WorkerState,
)
from services.strategies.cost_model import (
    EARLY_EXCHANGE_REASON,
    MAX_NEGLECTED_SHARE,
    CostModel,
    Flow,
    StepTimePrediction,
)

SHORT_VECTOR_BYTES = MIN_FLUID_MESSAGES_PER_VECTOR * MAX_FLUID_MESSAGE_BYTES  # its messages are shorter than others


class AllReduce(SinglePhaseStrategy):
    """Synchronous data parallelism: an all-reduce sums the gradients of all workers.

    Each gradient is weighted by its share of the samples. Sums are formed in a fixed order, so all replicas hold the
    same bits and a run with the same seed repeats exactly.
    """

    kind: Literal["all_reduce"] = "all_reduce"
    collective: AnyCollective = Field(default=Ring(), description="algorithm that sums the gradients")
    compress: AnyCompressor = Field(IdentityCompressor(), description="number format of vectors sent at every hop")
    balance: AnyBatchBalance = Field(UniformBalance(), description=BALANCE_DESCRIPTION)

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        if self.compress.aggregation != "partial_sums":
            why = "all_reduce adds vectors at every hop, so it needs a compressor of partial sums"
            yield KeyConflict((), f"{why}; compressor {self.compress.kind} compresses whole vectors")
        elif reason := self.collective.unsupported_rank_count_reason(scenario_sizes.workers):
            yield KeyConflict((), reason)
        if conflict := self.collective.find_model_conflict(scenario_sizes.array_sizes):
            key, why = conflict
            yield KeyConflict(("collective", key), why)
        if self.collective.needs_link_rates and not scenario_sizes.has_link_rates:
            why = "auto compares predicted transfer times, but the scenario declares no link rate"
            yield KeyConflict(("collective",), f"{why}; set cluster.worker.uplink, or choose another collective")
        yield from find_balance_conflicts(self.balance, scenario_sizes)

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        collectives = self.collective.list_auto_candidates(network_and_model_sizes)
        candidates = [self.model_copy(update={"collective": collective}) for collective in collectives]
        if len(candidates) == 1:
            return candidates[0], {}
        exchange_s = [candidate.predict_step_time(cost_model).exchange_s for candidate in candidates]
        fastest = candidates[exchange_s.index(min(exchange_s))]
        kinds = [str(candidate.collective.kind) for candidate in candidates]
        return fastest, dict(zip(kinds, exchange_s, strict=True))

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(compressor=self.compress, balance=self.balance)

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        return self.collective.plan_transfers(worker_count)

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        sent = self.collective_schedule(worker_count).payload_bytes_by_rank(
            worker_count, parameter_count, lambda size: self.compress.compressed_size_bytes(size, dtype)
        )
        return BytesPerStep(workers=sent)

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        return self.predict_averaging_step_time(cost_model, 1)

    def predict_averaging_step_time(self, cost_model: CostModel, steps_per_exchange: int) -> StepTimePrediction:
        """Return the step time on a cluster, predicted by the formula of the all-reduce algorithm.

        An all-reduce ends every `steps_per_exchange` steps. The latency part is that of the longest chain of transfers.
        An exchange begins when the slowest worker has computed its gradient: t_c is the mean of the slowest worker's
        compute time in each step.
        """
        ranks, schedule = len(cost_model.workers), self.collective_schedule(len(cost_model.workers))
        compressed_bytes = self.compress.compressed_size_bytes(cost_model.entries, cost_model.dtype)
        size_bytes = compressed_bytes * cost_model.payload_scale
        flows = {
            edge: (cost_model.workers[edge[0]], cost_model.workers[edge[1]]) for edge in schedule.sending_rank_pairs
        }
        transfer_s = self.collective.all_reduce_time_s(ranks, size_bytes, 0.0, _seconds_per_byte(schedule, cost_model))
        waits_s = schedule.critical_path_latency_s(
            {edge: cost_model.max_latency_s([flow]) for edge, flow in flows.items()}
        )
        hidden_s = self._latency_hidden_by_transfer_s(schedule, cost_model, transfer_s, waits_s)
        compute_s = cost_model.compute_times.mean_slowest_s(steps_per_exchange)
        exchange_s = (transfer_s + waits_s - hidden_s) / steps_per_exchange
        return StepTimePrediction(
            compute_s=compute_s,
            exchange_s=exchange_s,
            formula=f"t_c + {self.collective.all_reduce_time_formula}"
            + (", less the part of α that pieces hide" if hidden_s else ""),
            inapplicable_reason=self._explain_inapplicable_form(
                cost_model, compute_s, exchange_s, waits_s, steps_per_exchange
            ),
        )

    def _explain_inapplicable_form(
        self, cost_model: CostModel, compute_s: float, exchange_s: float, latency_s: float, steps_per_exchange: int
    ) -> str:
        """Return why the closed form does not describe the step time on this cluster.

        Return an empty text if it does, or if exchanges are a negligible part of the step.
        """
        ranks, max_deviation_s = len(cost_model.workers), MAX_NEGLECTED_SHARE * (compute_s + exchange_s)
        if exchange_s <= max_deviation_s:
            return ""
        schedule, is_short = self.collective_schedule(ranks), cost_model.vector_bytes < SHORT_VECTOR_BYTES
        message_bytes = min(cost_model.fluid_message_bytes, schedule.max_piece_bytes or inf)
        if reason := self.collective.explain_inapplicable_form(ranks, ceil(cost_model.vector_bytes / message_bytes)):
            return reason
        if is_short and cost_model.has_unequal_links and not schedule.is_pipelined:
            return "ranks with faster links exchange short vectors before the others"
        spread_s = cost_model.compute_times.mean_spread_s(steps_per_exchange)
        if spread_s and is_short and not schedule.is_pipelined and exchange_s > compute_s:
            return EARLY_EXCHANGE_REASON
        # In a pipeline, the slowest rank still sends all its data: ranks that start early hide only latency.
        sends_all_data = schedule.all_ranks_send_in_every_round and schedule.is_pipelined
        has_own_links = not cost_model.network.shared_links
        hidden_s = latency_s / steps_per_exchange if sends_all_data and has_own_links else exchange_s
        if min(spread_s, hidden_s) > max_deviation_s / 2:
            return EARLY_EXCHANGE_REASON
        return ""

    def _latency_hidden_by_transfer_s(
        self, schedule: TransferSchedule, cost_model: CostModel, transfer_s: float, latency_s: float
    ) -> float:
        """Return the seconds of latency that overlap with transfers.

        Latency overlaps with transfers because messages are pipelined in pieces.
        """
        if cost_model.message_lengths is None:
            return 0.0
        ranks, vector_bytes = len(cost_model.workers), cost_model.vector_bytes
        longest_bytes = schedule.max_message_bytes(vector_bytes, *cost_model.message_lengths)
        piece_bytes = cost_model.round_to_whole_entries(longest_bytes)
        return self.collective.latency_hidden_by_transfer_s(ranks, vector_bytes, piece_bytes, transfer_s, latency_s)

    def create_worker_algorithm(self, worker_context: WorkerContext) -> "AllReduceWorker":
        return AllReduceWorker(worker_context, self.compress)


@dataclass(frozen=True)
class AllReduceWorker(WorkerAlgorithm):
    """Worker algorithm of all-reduce: sums gradients and updates the worker's own replica.

    The sum contains the gradients of all workers.
    """

    compressor: Compressor

    @property
    def sends_gradients_from_host(self) -> bool:
        return True

    def initial_state(self, params: Vector) -> WorkerState:
        return self.context.updater.init_state(params)

    def state_after_switch(self, params: Vector, update_count: int, optimiser_state: OptimiserState) -> WorkerState:  # noqa: ARG002
        """Return the worker's state after a strategy switch.

        The state is the worker's complete copy of the optimiser's state.
        """
        return optimiser_state

    def worker_optimiser_state(self, worker_state: WorkerState) -> OptimiserState:
        replicated: OptimiserState = worker_state
        return replicated

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: WorkerState, step_timer: StepTimer
    ) -> StepResult:
        context = self.context
        with step_timer.measure_phase("exchange"):
            own = gradient.to_host(context.device)
            mean = own * own.dtype.type(gradient.samples / context.batch_size(step))
            schedule, compressor = context.schedule, self.compressor
            await all_reduce(context.transport, context.workers, context.rank, schedule, step, mean, compressor)
        with step_timer.measure_phase("update"):
            mean_on_device, samples_before = context.device.to_device(mean), gradient.samples_before
            return StepResult(*context.updater.update_params(params, mean_on_device, worker_state, samples_before))


def _seconds_per_byte(schedule: TransferSchedule, cost_model: CostModel) -> float:
    """Return the effective seconds per byte (β) of an all-reduce schedule on a cluster.

    β is the time of all rounds on this network, divided by their time if every access link carries one byte per second.
    On equal links in a star topology, β is the seconds per byte of one link, whatever the schedule.
    """
    workers, dtype = cost_model.workers, cost_model.dtype
    links = dict.fromkeys(workers, 1.0)
    equal = CostModel(workers=workers, entries=1, dtype=dtype, uplink_s_per_byte=links, downlink_s_per_byte=links)
    transfer_s = equal_transfer_s = 0.0
    for load, rounds in Counter(
        _list_bytes_by_node_pair(load, workers) for load in schedule.relative_payload_sizes
    ).items():
        transfer_s += rounds * cost_model.transfer_s(load)
        equal_transfer_s += rounds * equal.transfer_s(load)
    return transfer_s / equal_transfer_s if equal_transfer_s else 0.0


def _list_bytes_by_node_pair(
    rank_pair_bytes: Mapping[RankPair, int], node_names: Sequence[str]
) -> tuple[tuple[Flow, int], ...]:
    """Return the bytes that each pair of workers transfers in one round of a schedule.

    Each pair is (sender, receiver). The pairs are sorted by names.
    """
    return tuple(
        sorted(((node_names[source], node_names[target]), size) for (source, target), size in rank_pair_bytes.items())
    )
