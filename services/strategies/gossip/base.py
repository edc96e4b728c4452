"""Base class of gossip strategies: workers exchange with neighbours only, and evaluate the mean of all workers."""

from abc import ABC
from collections.abc import Iterator
from typing import Self

from pydantic import Field

from services.collectives import AnyCollective, NetworkAndModelSizes, Ring
from services.schema.conflicts import KeyConflict
from services.strategies.base import ExchangePattern, ScenarioSizes, SinglePhaseStrategy
from services.strategies.base.training_quality import TrainingQuality, unguarded_quality
from services.strategies.cost_model import CostModel
from services.strategies.gossip.evaluation_mean import EvaluationMean


class GossipStrategy(SinglePhaseStrategy, ABC):
    """Base class of gossip strategies.

    All workers do the same number of steps, but their parameters always differ. Before an evaluation, an all-reduce
    computes the mean.
    """

    collective: AnyCollective = Field(
        default=Ring(), description="algorithm that averages the parameters of all workers before an evaluation"
    )

    @property
    def _evaluation_mean(self) -> EvaluationMean:
        return EvaluationMean(self.collective)

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from self._evaluation_mean.all_reduce.find_scenario_conflicts(scenario_sizes)

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        collective = self._evaluation_mean.resolve_collective(network_and_model_sizes, cost_model)
        return self.model_copy(update={"collective": collective}), {}

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(
            has_equal_replicas=False, is_gossip=True, evaluation_sum=self._evaluation_mean.all_reduce.vector_sum
        )

    def describe_quality(self) -> TrainingQuality:
        reason = "workers never have common parameters, and their distance from the mean has no known limit"
        return unguarded_quality(self.kind, reason)
