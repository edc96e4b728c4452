"""Trial to check, together with the scenario that declares it, and the flows of its plan."""

from collections.abc import Iterator
from typing import NamedTuple

from services.cluster.addresses import DummyAddresses
from services.cluster.cluster import cluster_node_names
from services.plan import Plan, PostSwitchPhasePlan, make_plan
from services.scenario.run_settings import EngineName
from services.scenario.scenario import Scenario, TrialSpec
from services.scenario.trial_identity import TrialIdentity
from services.strategies.cost_model import Flow


class SweptTrial(NamedTuple):
    """One trial of a scenario, and the scenario with the swept values of the trial.

    The trial has only its own nodes and events, whose positions in lists may differ from those in the scenario.
    """

    identity: TrialIdentity
    trial: TrialSpec
    declared: Scenario

    @property
    def worker_and_server_names(self) -> tuple[str, ...]:
        """Names of the nodes that exchange training data."""
        return cluster_node_names(
            self.trial.scenario.cluster.workers, self.trial.strategy.training_phases().server_count
        )

    def plan_without_events(self, engine_name: EngineName) -> Plan:
        """Return the plan of the trial on an engine, as if the scenario declared no events."""
        scenario = self.trial.scenario.model_copy(update={"events": ()})
        return make_plan(self.trial.model_copy(update={"scenario": scenario}), "", engine_name, DummyAddresses())


def decode_swept_trial(scenario: Scenario, identity: TrialIdentity) -> SweptTrial:
    """Return a trial of a scenario, to be checked.

    Raises:
        pydantic.ValidationError: the combination of swept values has conflicts.
    """
    declared = scenario.with_swept_values(identity)
    return SweptTrial(identity, declared.reduce_to_trial(identity), declared)


def list_training_phases(plan: Plan) -> tuple[Plan | PostSwitchPhasePlan, ...]:
    """Return the plan of each training phase: one, or two if the strategy switches."""
    return (plan, plan.second_phase) if plan.second_phase else (plan,)


def list_flows(plan: Plan, phase: Plan | PostSwitchPhasePlan) -> Iterator[Flow]:
    """Yield (sender, receiver) of each vector or chunk that nodes send in one exchange of a training phase."""
    workers = plan.step_cost_model.workers
    for transfer in phase.schedule.transfers_of_all_rounds:
        if transfer.kind != "token":
            yield workers[transfer.source], workers[transfer.target]
    if not phase.schedule.rounds:
        for worker, owner in plan.worker_server_push_pairs:
            yield from ((worker, owner), (owner, worker))
