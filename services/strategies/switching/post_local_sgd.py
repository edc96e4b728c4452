"""Post-local SGD: all-reduce in every step at first, later local SGD.

T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020. The paper switches
at the first decay of the learning rate. We differ: any switch rule decides, by default at half of the steps.
"""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, PositiveInt

from services.collectives import AnyCollective, NetworkAndModelSizes, Ring
from services.collectives.all_gather import AnyAllGather, RingAllGather
from services.compressors import AnyCompressor, IdentityCompressor
from services.schema.conflicts import KeyConflict
from services.strategies.all_reduce import AllReduce, combine_all_reduce
from services.strategies.base import PhasesAndSwitch, ScenarioSizes, Strategy
from services.strategies.cost_model import CostModel
from services.strategies.local_training import LocalSgd
from services.strategies.switching.rules import AnySwitchRule, AtStepRule
from services.strategies.switching.switch import TrainingPhaseSwitch


class PostLocalSgd(Strategy):
    """Strategy that trains with all_reduce until the switch rule `when` fires, and then with local_sgd.

    The learning rate stays the same. Every worker continues with the common state of the optimiser.
    """

    kind: Literal["post_local_sgd"] = "post_local_sgd"
    period: PositiveInt = Field(description="local steps from one exchange to the next after the switch")
    when: AnySwitchRule = Field(
        AtStepRule(fraction=0.5),
        description="rule that decides when to switch: at a plateau of the loss, at a step, or never",
    )
    collective: AnyCollective = Field(default=Ring(), description="algorithm that sums gradients, later parameters")
    compress: AnyCompressor = Field(IdentityCompressor(), description="number format of vectors on the wire")
    gather: AnyAllGather = Field(
        default=RingAllGather(),
        description="all-gather of compressed vectors, for compressors whose vectors cannot be added",
    )
    average_optimiser_state: bool = Field(
        default=False,
        description="whether an exchange after the switch also averages the vectors of the optimiser's state, such as "
        "momenta; false: every worker keeps its own",
    )

    @property
    def _first_phase(self) -> AllReduce:
        return combine_all_reduce(self.collective, self.compress, self.gather)

    @property
    def _second_phase(self) -> LocalSgd:
        return LocalSgd(
            period=self.period,
            collective=self.collective,
            compress=self.compress,
            gather=self.gather,
            average_optimiser_state=self.average_optimiser_state,
        )

    def training_phases(self) -> PhasesAndSwitch:
        first, second = self._first_phase, self._second_phase
        has_fraction = getattr(self.when, "fraction", None) is not None
        fraction_key = ("when", "fraction") if has_fraction else None
        switch = TrainingPhaseSwitch(first, second, self.when, "carry", _unchanged_learning_rate, fraction_key)
        return PhasesAndSwitch(first, switch)

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        resolved, exchange_s = self._first_phase.resolve_auto_collective(network_and_model_sizes, cost_model)
        return self.model_copy(update={"collective": resolved.collective, "compress": resolved.compress}), exchange_s

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from self._second_phase.find_scenario_conflicts(scenario_sizes)
        if conflict := self.when.switch_time_conflict(scenario_sizes):
            key, why = conflict
            yield KeyConflict(("when", key), why)


def _unchanged_learning_rate(worker_count: int) -> float:  # noqa: ARG001 - it depends on no cluster
    """Return the factor of the learning rate at the switch: the mean of all workers' steps has the same rate."""
    return 1.0
