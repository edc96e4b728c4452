"""Sync-Switch strategy: a parameter server that is synchronous at first and asynchronous later.

S. Li, O. Mangoubi, L. Xu, T. Guo, "Sync-Switch: Hybrid parameter synchronization for distributed deep learning",
ICDCS 2021. The paper's policies and how they are implemented here:

- Timing: the switch comes after a fraction of the workload. `ensayo search-switch` finds a good fraction. The fraction
  counts samples, since asynchronous workers have no common step.
- Configuration: n·B samples at rate n·η in synchronous training become B samples at rate η per push; momentum stays. A
  scenario declares the synchronous rate n·η.
- Stragglers before the switch: the synchronisers `elastic` and `greedy`. With rate per_sample, as here, updates from k
  of n gradients use k/n of the rate.
"""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field

from services.collectives import NetworkAndModelSizes
from services.compressors import AnyCompressor, IdentityCompressor
from services.parameter_server.synchronisers import AnySynchroniser, Asp, Bsp, ElasticSynchroniser, GreedySynchroniser
from services.schema.conflicts import KeyConflict
from services.schema.limits import MAX_SERVERS
from services.strategies.base import PhasesAndSwitch, ScenarioSizes, Strategy
from services.strategies.compressor_fit import fit_compressors
from services.strategies.cost_model import CostModel
from services.strategies.server_based import ParameterServer
from services.strategies.switching.rules import AtStepRule
from services.strategies.switching.strategy_switch import find_phase_conflicts
from services.strategies.switching.switch import TrainingPhaseSwitch

SYNCHRONISER_BY_STRAGGLER_POLICY: dict[str, AnySynchroniser] = {
    "keep": Bsp(),
    "elastic": ElasticSynchroniser(),
    "greedy": GreedySynchroniser(),
}


class SyncSwitch(Strategy):
    """Parameter server that is synchronous (bsp) at first, then asynchronous (asp).

    The synchronous phase lasts for a fraction of the steps. Both phases use the same servers.
    """

    kind: Literal["sync_switch"] = "sync_switch"
    servers: int = Field(
        default=1,
        ge=1,
        le=MAX_SERVERS,
        description="number of servers; each one owns a shard of the parameters",
    )
    fraction: float = Field(0.125, ge=0, le=1, description="part of the steps that is synchronous; 1: all steps")
    stragglers: Literal["keep", "elastic", "greedy"] = Field(
        default="keep",
        description="policy for stragglers before the switch. keep: all workers wait for stragglers; elastic: no "
        "worker waits for stragglers; greedy: training is asynchronous while there is a straggler",
    )
    compress: AnyCompressor = Field(IdentityCompressor(), description="number format of pushes, not of replies")

    def training_phases(self) -> PhasesAndSwitch:
        before, after = self._strategies_before_and_after()
        rule = AtStepRule(fraction=self.fraction)
        switch = TrainingPhaseSwitch(
            before, after, rule, "carry", self._learning_rate_factor, fraction_key=("fraction",)
        )
        return PhasesAndSwitch(before, switch)

    def resolve_auto_collective(
        self,
        network_and_model_sizes: NetworkAndModelSizes,
        cost_model: CostModel,  # noqa: ARG002 - there is nothing to choose
    ) -> tuple[Self, dict[str, float]]:
        fitted = fit_compressors({"compress": self.compress}, network_and_model_sizes.array_shapes)
        return self.model_copy(update=fitted), {}

    def _strategies_before_and_after(self) -> tuple[ParameterServer, ParameterServer]:
        synchroniser = SYNCHRONISER_BY_STRAGGLER_POLICY[self.stragglers]
        before = ParameterServer(servers=self.servers, synchrony=synchroniser, compress=self.compress)
        return before, before.model_copy(update={"synchrony": Asp()})

    def _learning_rate_factor(self, worker_count: int) -> float:
        before, after = (part.server_algorithm() for part in self._strategies_before_and_after())
        return after.gradients_per_update(worker_count) / before.gradients_per_update(worker_count)

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield the scenario conflicts of both training phases.

        Each conflict is yielded once. Key paths start at the keys of this strategy.
        """
        conflicts = find_phase_conflicts(*self._strategies_before_and_after(), scenario_sizes, None)
        yield from dict.fromkeys(KeyConflict(path[1:], why) for path, why in conflicts)
