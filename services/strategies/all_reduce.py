"""All-reduce strategy: every worker receives the sum of all gradients and updates its own replica."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field

from services.collectives import AnyCollective, CollectiveSite, Ring, Schedule
from services.collectives.base import Edge
from services.collectives.execution.executor import all_reduce
from services.compressors import AnyCompressor, Compressor, IdentityCompressor
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimes
from services.schema.arrays import Vector
from services.schema.conflicts import Conflict
from services.strategies.base import (
    BytesPerStep,
    Gradient,
    PhaseStrategy,
    PhaseTraits,
    StepResult,
    StrategyContext,
    WorkerAlgorithm,
    WorkerContext,
    WorkerState,
)
from services.strategies.cost_model import CostModel, Flow, StepPrediction


class AllReduce(PhaseStrategy):
    """Synchronous data parallelism by all-reduce: the sum of all gradients, each weighted by its share of the samples.

    Sums are formed in a fixed order, so all replicas hold the same bits and a run with the same seed repeats exactly.
    """

    kind: Literal["all_reduce"] = "all_reduce"
    collective: AnyCollective = Field(default=Ring(), description="algorithm that sums the gradients")
    compress: AnyCompressor = Field(
        default=IdentityCompressor(), description="number format of vectors on the wire, at every hop"
    )

    def conflicts(self, context: StrategyContext) -> Iterator[Conflict]:
        if self.compress.init(1) is not None:
            why = "all_reduce adds vectors at every hop, so it needs a compressor without state"
            yield Conflict((), f"{why}; compressor {self.compress.kind} has state")
        elif reason := self.collective.conflict_reason(context.workers):
            yield Conflict((), reason)
        if conflict := self.collective.array_conflict(context.array_sizes):
            key, why = conflict
            yield Conflict(("collective", key), why)
        if self.collective.needs_link_rates and not context.has_link_rates:
            why = "auto compares predicted transfer times, but the scenario declares no link rate"
            yield Conflict(("collective",), f"{why}; set cluster.worker.uplink, or choose another collective")

    def resolve(self, site: CollectiveSite, cost: CostModel) -> tuple[Self, dict[str, float]]:
        collectives = self.collective.resolved_candidates(site)
        candidates = [self.model_copy(update={"collective": collective}) for collective in collectives]
        if len(candidates) == 1:
            return candidates[0], {}
        exchange_s = [candidate.predict(cost).exchange_s for candidate in candidates]
        fastest = candidates[exchange_s.index(min(exchange_s))]
        kinds = [str(candidate.collective.kind) for candidate in candidates]
        return fastest, dict(zip(kinds, exchange_s, strict=True))

    def phase_traits(self) -> PhaseTraits:
        return PhaseTraits(compressor=self.compress)

    def schedule(self, workers: int) -> Schedule:
        return self.collective.schedule(workers)

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> BytesPerStep:
        sent = self.schedule(workers).payload_bytes_by_rank(
            workers, entries, lambda size: self.compress.nbytes(size, dtype)
        )
        return BytesPerStep(workers=sent)

    def predict(self, cost: CostModel) -> StepPrediction:
        """Return the step time that the closed form of the collective predicts for the cluster.

        The latency part is that of the longest chain of transfers. An exchange begins when the slowest worker has
        computed its gradient: E[X_(n:n)] if speeds vary.
        """
        ranks, schedule = len(cost.workers), self.schedule(len(cost.workers))
        size_bytes = self.compress.nbytes(cost.entries, cost.dtype)
        flows = {edge: (cost.workers[edge[0]], cost.workers[edge[1]]) for edge in schedule.edges}
        transfer_s = self.collective.predict_seconds(ranks, size_bytes, 0.0, _s_per_byte(schedule, cost))
        waits_s = schedule.critical_path_latency_s({edge: cost.latency_s([flow]) for edge, flow in flows.items()})
        hidden_s = self._hidden_latency_s(schedule, cost, transfer_s, waits_s)
        return StepPrediction(
            compute_s=cost.kth_worker_compute_s(ranks),
            exchange_s=transfer_s + waits_s - hidden_s,
            formula=f"t_c + {self.collective.formula}" + (", less the part of α that pieces hide" if hidden_s else ""),
        )

    def _hidden_latency_s(self, schedule: Schedule, cost: CostModel, transfer_s: float, latency_s: float) -> float:
        """Return the part of the latency that a pipeline of message pieces hides, in seconds."""
        if cost.lengths is None:
            return 0.0
        piece_bytes = schedule.piece_bytes(cost.vector_bytes, *cost.lengths)
        return self.collective.hidden_latency_s(
            len(cost.workers), cost.vector_bytes, piece_bytes, transfer_s, latency_s
        )

    def worker_algorithm(self, context: WorkerContext) -> "AllReduceWorker":
        return AllReduceWorker(context, self.compress)


@dataclass(frozen=True)
class AllReduceWorker(WorkerAlgorithm):
    """Worker algorithm of all-reduce: sums gradients with all other workers and updates the worker's own replica."""

    compressor: Compressor

    def init(self, params: Vector) -> WorkerState:
        return self.context.optimiser.init(params)

    def resume(self, params: Vector, version: int, optimiser_state: OptimiserState) -> WorkerState:  # noqa: ARG002
        """Return the optimiser's state: every replica has a complete copy of it."""
        return optimiser_state

    def optimiser_state(self, state: WorkerState) -> OptimiserState:
        replicated: OptimiserState = state
        return replicated

    async def step(
        self, step: int, params: Vector, gradient: Gradient, state: WorkerState, times: StepTimes
    ) -> StepResult:
        context = self.context
        with times.measure("exchange"):
            own = context.device.to_host(gradient.mean)
            mean = own * own.dtype.type(gradient.samples / context.batch_size(step))
            schedule, compressor = context.schedule, self.compressor
            await all_reduce(context.transport, context.workers, context.rank, schedule, step, mean, compressor)
        with times.measure("update"):
            return StepResult(*context.optimiser.step(params, context.device.to_device(mean), state))


def _s_per_byte(schedule: Schedule, cost: CostModel) -> float:
    """Return the effective seconds per byte (β) of a schedule on the network of a cluster.

    β is the time of all rounds on this network, divided by their time if every access link carries one byte per second.
    On equal links in a star topology, β is the seconds per byte of one link, whatever the schedule.
    """
    links = dict.fromkeys(cost.workers, 1.0)
    equal = CostModel(
        workers=cost.workers,
        entries=1,
        dtype=cost.dtype,
        uplink_s_per_byte=links,
        downlink_s_per_byte=links,
        compute_s=0.0,
    )
    transfer_s = equal_transfer_s = 0.0
    for load, rounds in Counter(_flow_weights(load, cost.workers) for load in schedule.edge_loads).items():
        transfer_s += rounds * cost.transfer_s(load)
        equal_transfer_s += rounds * equal.transfer_s(load)
    return transfer_s / equal_transfer_s if equal_transfer_s else 0.0


def _flow_weights(load: Mapping[Edge, int], worker_names: Sequence[str]) -> tuple[tuple[Flow, int], ...]:
    """Return the bytes of each flow in one round of a schedule, with worker names in place of ranks, sorted."""
    return tuple(
        sorted(((worker_names[source], worker_names[target]), weight) for (source, target), weight in load.items())
    )
