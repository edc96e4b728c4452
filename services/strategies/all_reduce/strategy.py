"""All-reduce strategy: every worker receives the sum of all gradients and updates its own replica."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, Self

from pydantic import Field

from services.collectives import AnyCollective, Collective, NetworkAndModelSizes, Ring, TransferSchedule
from services.collectives.all_gather import AnyAllGather, RingAllGather
from services.compressors import ArrayShape, Compressor, IdentityCompressor, after_format_stages, list_format_stages
from services.learning.batch_balance import AnyBatchBalance, UniformBalance
from services.schema.component import ScenarioComponent
from services.schema.conflicts import KeyConflict
from services.strategies.all_reduce.worker import AllReduceWorker
from services.strategies.balance_conflicts import BALANCE_DESCRIPTION, find_balance_conflicts
from services.strategies.base import (
    BytesPerStep,
    ExchangePattern,
    ScenarioSizes,
    SinglePhaseStrategy,
    StrategyFormatStage,
    WorkerContext,
)
from services.strategies.base.training_quality import TrainingQuality, quality_of_sums
from services.strategies.compressor_fit import find_array_conflicts, fit_compressors
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.overlap import AnyOverlap, NoOverlap
from services.strategies.vector_sums import AnyGradientCompression, VectorSum, choose_vector_sum
from services.strategies.vector_sums.prediction import predict_step_with_sum
from services.strategies.vector_sums.shared_scale_sum import MAX_RANKS

NO_OVERLAP = NoOverlap()


class AllReduce(SinglePhaseStrategy):
    """Synchronous data parallelism: an all-reduce sums the gradients of all workers.

    Each gradient is weighted by its share of the samples. Sums are formed in a fixed order, so all replicas hold the
    same bits and a run with the same seed repeats exactly.
    """

    kind: Literal["all_reduce"] = "all_reduce"
    collective: AnyCollective = Field(default=Ring(), description="algorithm that sums the gradients")
    compress: AnyGradientCompression = Field(
        default=IdentityCompressor(), description="number format of vectors on the wire, or power_sgd"
    )
    gather: AnyAllGather = Field(
        default=RingAllGather(),
        description="all-gather of compressed vectors, for compressors whose vectors cannot be added",
    )
    overlap: AnyOverlap = Field(NO_OVERLAP, description="whether the exchange begins during the backward pass")
    balance: AnyBatchBalance = Field(UniformBalance(), description=BALANCE_DESCRIPTION)

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from find_balance_conflicts(self.balance, scenario_sizes)
        yield from self._find_overlap_conflicts(scenario_sizes)
        yield from self._find_two_sum_conflicts(scenario_sizes)
        yield from find_array_conflicts({"compress": self.compress}, scenario_sizes)
        if self.compress.aggregation == "all_gather":
            yield from self._find_unused_key_conflict("collective", Ring(), "gather")
            return
        yield from self._find_unused_key_conflict("gather", RingAllGather(), "collective")
        yield from self._find_collective_conflicts(scenario_sizes)

    def _find_overlap_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        if self.overlap == NO_OVERLAP:
            return
        remedy = "write overlap: {kind: none}"
        if scenario_sizes.micro_batches > 1:
            why = "an overlapped exchange sends parts of the gradient during the backward pass, but no part is complete"
            count = scenario_sizes.micro_batches
            message = f"{why} before the last of {count} micro-batches; {remedy}, or workload.micro_batches: 1"
            yield KeyConflict(("overlap",), message)
        if self.compress.aggregation != "partial_sums":
            why = f"compressor {self.compress.kind} compresses whole vectors, not buckets"
            yield KeyConflict(("overlap",), f"{why}; {remedy}, or compress with fp16 or bf16")
        elif self.collective.sums_arrays_separately:
            why = f"collective {self.collective.kind} cuts the vector into the arrays of the model, not its buckets"
            yield KeyConflict(("overlap",), f"{why}; {remedy}, or choose another collective")

    def _find_unused_key_conflict(
        self, unused_key: str, default: ScenarioComponent, used_key: str
    ) -> Iterator[KeyConflict]:
        """Yield a conflict if a key is declared that this compressor does not use."""
        if getattr(self, unused_key) != default:
            why = f"{unused_key} has no effect, because compressor {self.compress.kind} uses {used_key} instead"
            yield KeyConflict((unused_key,), f"{why}; remove {unused_key}")

    def _find_two_sum_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield the conflicts of compressions that sum two vectors, of other lengths than the gradient."""
        kind, aggregation = self.compress.kind, self.compress.aggregation
        if aggregation not in {"low_rank", "shared_scale"}:
            return
        if self.collective.sums_arrays_separately:
            why = f"collective {self.collective.kind} cuts one vector into the arrays of the model"
            yield KeyConflict(
                ("collective",), f"{why}, but {kind} sums two other vectors; choose another collective, or fused: true"
            )
        if aggregation == "shared_scale" and scenario_sizes.workers > MAX_RANKS:
            why = f"sums of levels of {scenario_sizes.workers} workers do not fit into 16 bits"
            yield KeyConflict(("compress", "scale"), f"{why}; use at most {MAX_RANKS} workers, or write scale: local")

    def _find_collective_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        if reason := self.collective.unsupported_rank_count_reason(scenario_sizes.workers):
            yield KeyConflict((), reason)
        adds_payloads = self.compress.aggregation in {"payloads", "shared_scale", "low_rank"}
        if conflict := self.collective.find_model_conflict((0,) if adds_payloads else scenario_sizes.array_sizes):
            key, why = conflict
            reason = f"compressor {self.compress.kind} sends one array instead of those of the model; remove {key}"
            yield KeyConflict(("collective", key), reason if adds_payloads else why)
        if self.collective.needs_link_rates and not scenario_sizes.has_link_rates:
            why = "auto compares predicted transfer times, but the scenario declares no link rate"
            yield KeyConflict(("collective",), f"{why}; set cluster.worker.uplink, or choose another collective")

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        fitted = self._fit_to_model(network_and_model_sizes.array_shapes)
        if self.compress.aggregation == "all_gather":
            return fitted, {}
        sizes = fitted.vector_sum.sizes_of_added_vector(network_and_model_sizes, cost_model)
        collectives = self.collective.list_auto_candidates(sizes)
        candidates = [
            fitted._resolve_collective(collective, network_and_model_sizes, cost_model)  # noqa: SLF001 - a copy of this strategy
            for collective in collectives
        ]
        if len(candidates) == 1:
            return candidates[0], {}
        exchange_s = [candidate.predict_step_time(cost_model).exchange_s for candidate in candidates]
        fastest = candidates[exchange_s.index(min(exchange_s))]
        kinds = [str(candidate.collective.kind) for candidate in candidates]
        return fastest, dict(zip(kinds, exchange_s, strict=True))

    def _fit_to_model(self, array_shapes: Sequence[ArrayShape]) -> Self:
        """Return this strategy with a compression for a model with arrays of these shapes."""
        return self.model_copy(update=fit_compressors({"compress": self.compress}, array_shapes))

    def _resolve_collective(
        self, collective: Collective, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> Self:
        """Return this strategy with a concrete collective, and with the buckets of the model."""
        strategy = self.model_copy(update={"collective": collective})
        predict_exchange = partial(_predict_exchange_of_entries, strategy, cost_model)
        return strategy.model_copy(update={"overlap": self.overlap.resolve(network_and_model_sizes, predict_exchange)})

    @property
    def vector_sum(self) -> VectorSum:
        """Way in which workers sum their gradients."""
        return choose_vector_sum(self.collective, self.gather, self.compress)

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(
            compressor=self.compress,
            sums_per_exchange=self.vector_sum.stage_count,
            gradient_buckets=self.overlap.gradient_buckets,
            balance=self.balance,
        )

    def describe_quality(self) -> TrainingQuality:
        return quality_of_sums(self.compress)

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        return self.vector_sum.plan_transfers(worker_count)

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        part_sizes = [part.vector_range.size for part in self.overlap.exchange_order] or [parameter_count]
        sent_by_part = [self.vector_sum.sent_bytes_by_rank(worker_count, size, dtype) for size in part_sizes]
        return BytesPerStep(workers=tuple(map(sum, zip(*sent_by_part, strict=True))))

    def list_format_stages(self) -> tuple[StrategyFormatStage, ...]:
        return tuple(
            StrategyFormatStage(end, self.model_copy(update={"compress": compressor}))
            for end, compressor in list_format_stages(self.compress)
        )

    def after_format_stages(self) -> Self:
        if isinstance(self.compress, Compressor) and list_format_stages(self.compress):
            return self.model_copy(update={"compress": after_format_stages(self.compress)})
        return self

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        whole_vector = self.predict_averaging_step_time(cost_model, 1)
        return self.overlap.predict_step_time(whole_vector, partial(_predict_exchange_of_entries, self, cost_model))

    def predict_averaging_step_time(self, cost_model: CostModel, steps_per_exchange: int) -> StepTimePrediction:
        """Return the predicted step time on a cluster where an all-reduce ends every `steps_per_exchange` steps."""
        return predict_step_with_sum(self.vector_sum, cost_model, steps_per_exchange)

    def create_worker_algorithm(self, worker_context: WorkerContext) -> AllReduceWorker:
        return AllReduceWorker(worker_context, self.vector_sum, self.overlap)


def combine_all_reduce(collective: AnyCollective, compress: AnyGradientCompression, gather: AnyAllGather) -> AllReduce:
    """Return the all-reduce of another strategy's parts, which have been validated there."""
    return AllReduce().model_copy(update={"collective": collective, "compress": compress, "gather": gather})


def _predict_exchange_of_entries(strategy: AllReduce, cost_model: CostModel, entries: int) -> StepTimePrediction:
    """Return the predicted step in which a vector with a given number of entries is exchanged."""
    return strategy.predict_averaging_step_time(cost_model.model_copy(update={"entries": entries}), 1)
