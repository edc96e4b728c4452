"""DiLoCo strategy, also with fragments and with exchanges that overlap with the compute (Streaming DiLoCo).

A. Douillard et al., "DiLoCo: Distributed low-communication training of language models", arXiv:2311.08105, 2023.
A. Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a distributed free lunch",
arXiv:2501.18512, 2025.
"""

from collections.abc import Iterator
from math import ceil
from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt

from services.collectives import AnyCollective, NetworkAndModelSizes, Ring, TransferSchedule
from services.collectives.all_gather import AnyAllGather, RingAllGather
from services.compressors import AnyCompressor, IdentityCompressor, ModelDependentCompression
from services.learning.layout import equal_vector_ranges
from services.learning.optimisers import AnyOptimiser, Momentum
from services.schema.conflicts import KeyConflict
from services.strategies.all_reduce import AllReduce, combine_all_reduce
from services.strategies.base import (
    BytesPerStep,
    ExchangePattern,
    ScenarioSizes,
    SinglePhaseStrategy,
    WorkerContext,
    average_bytes_per_step,
)
from services.strategies.base.training_quality import TrainingQuality, quality_of_sums
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.cost_model.exchange_schedule import ExchangeSchedule
from services.strategies.local_training.diloco.worker import DiLoCoWorker
from services.strategies.local_training.periodic_exchange import find_compressor_conflicts, find_period_conflicts

DEFAULT_OUTER_OPTIMISER = Momentum(rate=0.7, momentum=0.9, nesterov=True)  # as in the paper of DiLoCo
MAX_NEGLECTED_OVERLAP_SHARE = 0.5  # of the overlapping compute: a shorter exchange ends in time on unequal workers too


class DiLoCo(SinglePhaseStrategy):
    """DiLoCo: local training, and one outer update of the common parameters every `period` steps.

    The outer gradient is the common parameters minus the mean of the workers' parameters, weighted by samples. With an
    outer optimiser `sgd` of rate 1, the outer update equals the exchange of local_sgd apart from rounding.

    With `fragments` P, the vector has P ranges that are exchanged in turn, one every `period`/P steps. If P does not
    divide the period, the steps from one exchange to the next differ by one at most.

    With `overlap_steps` τ, an exchange overlaps with the compute of τ steps, and then its result is merged into the
    worker's parameters. A fraction of a step is the end of the first of these steps: with 2/3, the exchange begins when
    a step has done a third of its compute, which is the start of its backward pass, and is merged after this step. It
    exchanges the parameters from before this step.

    Evaluations use the common parameters. The last step of the budget ends with an exchange of the next fragment, and
    waits for all exchanges.
    """

    kind: Literal["diloco"] = "diloco"
    period: PositiveInt = Field(description="local steps from one exchange of a parameter to its next exchange (H)")
    outer: AnyOptimiser = Field(
        DEFAULT_OUTER_OPTIMISER,
        description="outer optimiser, which updates the common parameters; default: Nesterov momentum 0.9 at rate 0.7",
    )
    fragments: PositiveInt = Field(
        1, description="number of ranges of the vector that are exchanged in turn (P); at most the period"
    )
    overlap_steps: NonNegativeFloat = Field(
        0.0,
        description="steps whose compute runs beside an exchange (τ); at most period / fragments. 0.667: the backward "
        "pass of one step",
    )
    merge_weight: float = Field(
        1.0,
        gt=0,
        le=1,
        description="weight of the common parameters when a worker merges them into its own; 1: it replaces its own. "
        "Equals 1 - α of the paper",
    )
    collective: AnyCollective = Field(default=Ring(), description="algorithm that sums the outer gradients")
    compress: AnyCompressor = Field(IdentityCompressor(), description="number format of vectors on the wire")
    gather: AnyAllGather = Field(
        default=RingAllGather(),
        description="all-gather of compressed vectors, for compressors whose vectors cannot be added",
    )
    average_optimiser_state: bool = Field(
        default=False,
        description="whether an exchange also averages the vectors of the workers' optimiser, such as momenta; false: "
        "every worker keeps its own",
    )

    @property
    def _averaging_strategy(self) -> AllReduce:
        """All-reduce strategy that sums the outer gradients of the workers."""
        return combine_all_reduce(self.collective, self.compress, self.gather)

    @property
    def _exchange_schedule(self) -> ExchangeSchedule:
        """Steps after which fragments are exchanged."""
        return ExchangeSchedule(self.period, self.fragments)

    def explain_recovery_limit(self) -> str:
        if self.overlap_steps:
            return "with overlap_steps, an exchange is still running at every step; use overlap_steps: 0"
        return super().explain_recovery_limit()

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from self._averaging_strategy.find_scenario_conflicts(scenario_sizes)
        yield from find_period_conflicts(self.period, scenario_sizes)
        yield from find_compressor_conflicts(
            self.kind, self.compress, averages_optimiser_state=self.average_optimiser_state
        )
        yield from self._find_fragment_conflicts(scenario_sizes)
        longest = self._exchange_schedule.min_steps_per_exchange
        if self.overlap_steps > longest > 0:
            why = f"overlap_steps {self.overlap_steps:g} is longer than the {longest} steps between two exchanges"
            yield KeyConflict(("overlap_steps",), f"{why} (period / fragments); use at most {longest}")
        if self.overlap_steps and self.average_optimiser_state:
            why = (
                "with overlap_steps, the averaged state of the optimiser would replace the state of the steps made "
                "meanwhile; use average_optimiser_state: false, or overlap_steps: 0"
            )
            yield KeyConflict(("average_optimiser_state",), why)

    def _find_fragment_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield the conflicts of several fragments with the period, the model, the collective and the optimiser."""
        if self.fragments > self.period:
            why = (
                f"at most one fragment is exchanged after each step, so {self.fragments} fragments need a period of at "
                f"least {self.fragments} steps, not {self.period}"
            )
            remedy = f"use at most {self.period} fragments, or period: {self.fragments}"
            yield KeyConflict(("fragments",), f"{why}; {remedy}")
        elif self.fragments > scenario_sizes.parameter_count:
            why = f"the model has {scenario_sizes.parameter_count} parameters, too few for {self.fragments} fragments"
            yield KeyConflict(("fragments",), f"{why}; use at most {scenario_sizes.parameter_count}")
        elif self.fragments > 1 and self.collective.sums_arrays_separately:
            why = "the collective sums every array of the model separately, but a fragment is a range of the vector"
            yield KeyConflict(("fragments",), f"{why}; use fragments: 1, or another collective")
        elif self.fragments > 1 and isinstance(self.compress, ModelDependentCompression):
            why = f"compressor {self.compress.kind} needs whole arrays, but a fragment has only a part of the vector"
            yield KeyConflict(("fragments",), f"{why}; use fragments: 1, or another compressor, such as top_k")
        elif self.fragments > 1 and not self.outer.is_element_wise:
            why = f"outer optimiser {self.outer.kind} needs whole arrays, but a fragment has only a part of the vector"
            yield KeyConflict(("outer",), f"{why}; use fragments: 1, or an element-wise optimiser such as momentum")

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        if self.fragments > 1:
            fragment_entries = self._fragment_entries(sum(network_and_model_sizes.array_sizes))
            network_and_model_sizes = network_and_model_sizes.model_copy(update={"array_sizes": (fragment_entries,)})
        resolved, exchange_s = self._averaging_strategy.resolve_auto_collective(
            network_and_model_sizes, self._fragment_cost_model(cost_model)
        )
        strategy = self.model_copy(update={"collective": resolved.collective, "compress": resolved.compress})
        steps_per_exchange = self._exchange_schedule.mean_steps_per_exchange
        return strategy, {kind: seconds / steps_per_exchange for kind, seconds in exchange_s.items()}

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(
            has_equal_replicas=False,
            exchange_period=self._exchange_schedule.reduce().period,
            exchanges_per_period=self._exchange_schedule.reduce().exchanges,
            compressor=self.compress,
            includes_optimiser_state=self.average_optimiser_state,
        )

    def describe_quality(self) -> TrainingQuality:
        return quality_of_sums(self.compress).after_local_steps(self.period)

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        return self._averaging_strategy.collective_schedule(worker_count)

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        averaging, fragments = self._averaging_strategy, equal_vector_ranges(parameter_count, self.fragments)
        exchanges = [averaging.sent_bytes_per_step(worker_count, part.size, dtype).workers for part in fragments]
        period_bytes = (int(sum(sizes)) for sizes in zip(*exchanges, strict=True))
        return BytesPerStep(workers=tuple(average_bytes_per_step(size, self.period) for size in period_bytes))

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        """Return the predicted step time of DiLoCo.

        The exchange time E of a fragment counts once per exchange, less the compute of `overlap_steps` steps that runs
        beside it. Workers exchange nothing during the other steps. The compute
        time is that of the slowest worker from each exchange to the next.
        """
        steps_per_exchange = self._exchange_schedule.mean_steps_per_exchange
        min_steps = self._exchange_schedule.min_steps_per_exchange
        averaging = self._averaging_strategy.predict_averaging_step_time(
            self._fragment_cost_model(cost_model), min_steps
        )
        exchange_s = averaging.exchange_s * cost_model.vectors_per_exchange * (min_steps / steps_per_exchange)
        compute_times = cost_model.compute_times
        round_starts = self._exchange_schedule.list_round_starts(len(compute_times.seconds))
        compute_s = compute_times.mean_slowest_s_by_starts(round_starts)
        overlap_s = compute_s * self.overlap_steps / steps_per_exchange
        is_hidden = exchange_s <= MAX_NEGLECTED_OVERLAP_SHARE * overlap_s
        return StepTimePrediction(
            compute_s=compute_s,
            exchange_s=max(0.0, exchange_s - overlap_s),
            formula=self._format_formula(averaging.formula.removeprefix("t_c + "), cost_model.vectors_per_exchange),
            inapplicable_reason="" if is_hidden else averaging.inapplicable_reason,
            end_delay_s=self._predict_end_delay_s(cost_model, exchange_s * steps_per_exchange, compute_s),
        )

    def _predict_end_delay_s(self, cost_model: CostModel, exchange_s: float, compute_s: float) -> float:
        """Return the seconds of the last exchanges that would run beside compute if training went on.

        Nothing runs beside the exchange after the last step. The exchange before may run beside fewer steps than usual.
        `exchange_s` is the time of one exchange, and `compute_s` that of one step.
        """
        steps_after_exchange = self._exchange_schedule.steps_since_exchange(len(cost_model.compute_times.seconds))
        usually_hidden_s = min(exchange_s, self.overlap_steps * compute_s)
        if not 0 < steps_after_exchange < self.overlap_steps:
            return usually_hidden_s
        delay_steps = ceil(self.overlap_steps) - self.overlap_steps  # from the end of a step to an exchange
        return 2 * usually_hidden_s - min(exchange_s, (steps_after_exchange - delay_steps) * compute_s)

    def _format_formula(self, exchange_formula: str, vectors_per_exchange: int) -> str:
        factor = f"{vectors_per_exchange}·" if vectors_per_exchange > 1 else ""
        exposed = f"{factor}({exchange_formula})"
        if self.overlap_steps:
            exposed = f"max(0, {exposed} - {self.overlap_steps:g}·t_c)"
        if self.fragments == 1:
            return f"t_c + {exposed}/{self.period}"
        return f"t_c + {exposed}·{self.fragments}/{self.period}, S: bytes of one of {self.fragments} fragments"

    def _fragment_cost_model(self, cost_model: CostModel) -> CostModel:
        """Return the cost model of the exchange of one fragment."""
        return cost_model.model_copy(update={"entries": self._fragment_entries(cost_model.entries)})

    def _fragment_entries(self, parameter_count: int) -> int:
        """Return the number of entries of the longest fragment."""
        return ceil(parameter_count / self.fragments)

    def create_worker_algorithm(self, worker_context: WorkerContext) -> DiLoCoWorker:
        return DiLoCoWorker(
            worker_context,
            vector_sum=self._averaging_strategy.vector_sum,
            outer_optimiser=self.outer,
            exchange_schedule=self._exchange_schedule,
            overlap_steps=self.overlap_steps,
            merge_weight=self.merge_weight,
            averages_optimiser_state=self.average_optimiser_state,
        )
