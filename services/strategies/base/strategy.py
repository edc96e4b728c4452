"""Contracts of strategies: the strategy that a scenario declares, and its training phases."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from services.collectives.base import NetworkAndModelSizes
from services.parameter_server.server_algorithm import ServerAlgorithm
from services.schema.component import ScenarioComponent
from services.schema.conflicts import KeyConflict
from services.strategies.base.exchange_planning import ExchangePlanning
from services.strategies.base.node_algorithms import NodeAlgorithms
from services.strategies.base.scenario_sizes import ScenarioSizes
from services.strategies.cost_model import CostModel

if TYPE_CHECKING:
    from services.strategies.switching.switch import TrainingPhaseSwitch


@dataclass(frozen=True)
class PhasesAndSwitch:
    """Training phases of a strategy: one phase, or two phases with a strategy switch between them."""

    first: "SinglePhaseStrategy"
    switch: "TrainingPhaseSwitch | None" = None

    def __iter__(self) -> Iterator["SinglePhaseStrategy"]:
        yield self.first
        if self.switch:
            yield self.switch.second

    @property
    def first_phase_with_servers(self) -> "SinglePhaseStrategy | None":
        """First training phase that uses servers.

        None if no phase uses servers. A later phase with servers uses the same servers.
        """
        return next((phase for phase in self if phase.server_algorithm()), None)

    @property
    def first_server_algorithm(self) -> ServerAlgorithm | None:
        """Server algorithm of the first training phase that has servers.

        None if no phase has servers.
        """
        return self.first_phase_with_servers.server_algorithm() if self.first_phase_with_servers else None

    @property
    def server_count(self) -> int:
        """Number of nodes that are servers, and not workers, from the start of the run.

        Workers that become servers do not count.
        """
        return self.first_server_algorithm.dedicated_server_count if self.first_server_algorithm else 0


class Strategy(ScenarioComponent, ABC):
    """Contract of a strategy as declared in a scenario.

    A strategy finds its conflicts with other keys, chooses the collective, and has one or two training phases.
    """

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:  # noqa: ARG002 - most fit every scenario
        """Yield the conflicts between this strategy and other keys of the scenario.

        Key paths are relative to the strategy.
        """
        yield from ()

    def resolve_auto_collective(
        self,
        network_and_model_sizes: NetworkAndModelSizes,  # noqa: ARG002 - see below
        cost_model: CostModel,  # noqa: ARG002
    ) -> tuple[Self, dict[str, float]]:
        """Return this strategy with each value `auto` replaced by a concrete choice.

        For example, collective `auto` is replaced by the collective chosen for this network and model.

        Returns:
            The strategy, and the predicted seconds of an exchange with each alternative, by the alternative's name.
        """
        return self, {}

    def list_candidates(self) -> "tuple[SinglePhaseStrategy, ...]":
        """Return the strategies among which the plan of a trial chooses; empty if this strategy is planned itself."""
        return ()

    def explain_worker_count_conflict(self, worker_count: int) -> str:  # noqa: ARG002 - most allow any number
        """Return why this strategy can't train on this number of workers, and the remedy; empty if it can."""
        return ""

    def explain_recovery_limit(self) -> str:
        """Return why training can't go on after the loss of a worker, and the remedy; empty if it can.

        By default, it can't: the strategy is no single training phase.
        """
        return f"{self.kind} is no single training phase; use a strategy such as all_reduce"

    @abstractmethod
    def training_phases(self) -> PhasesAndSwitch:
        """Return the training phases of this strategy."""


class SinglePhaseStrategy(Strategy, ExchangePlanning, NodeAlgorithms, ABC):
    """Base class of a strategy with one training phase.

    It is used for a whole run, or before or after a strategy switch. It has a contract for each caller: `Strategy` for
    the scenario, `ExchangePlanning` for the plan, `NodeAlgorithms` for the nodes.
    """

    def training_phases(self) -> PhasesAndSwitch:
        return PhasesAndSwitch(self)

    def explain_recovery_limit(self) -> str:
        """Return why training can't go on after the loss of a worker, and the remedy; empty if it can.

        By default, it can if all workers do the same number of steps: they have a step in common to continue from.
        """
        if self.describe_worker_exchange().is_synchronous:
            return ""
        return f"under {self.kind}, workers have no step in common to continue from; use a synchronous strategy"

    def find_pre_switch_conflicts(self) -> Iterator[KeyConflict]:
        """Yield the conflicts that forbid this strategy only as the first phase of a strategy switch."""
        yield from ()

    def find_post_switch_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        """Yield the conflicts that forbid this strategy as the second phase of a strategy switch.

        By default, they are the conflicts of a whole run.
        """
        yield from self.find_scenario_conflicts(scenario_sizes)
