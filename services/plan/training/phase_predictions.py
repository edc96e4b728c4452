"""Predicted times of all training phases of a trial."""

from collections.abc import Sequence

from services.learning.data_order import DataOrder
from services.plan.cost import plan_compute_times
from services.plan.node_plan import NodePlan
from services.plan.prediction import PhasePrediction, explain_inapplicable_forms_of_cluster, predict_phase
from services.plan.training.balance_plan import plan_initial_shares
from services.plan.training.phase_plans import PostSwitchPhasePlan, planned_switch_step
from services.scenario.scenario import TrialSpec
from services.strategies import PhasesAndSwitch
from services.strategies.cost_model import CostModel


def predict_phases(
    strategy_phases: PhasesAndSwitch,
    trial: TrialSpec,
    nodes: Sequence[NodePlan],
    cost_model: CostModel,
    data_order: DataOrder,
) -> list[PhasePrediction]:
    """Return the predicted times of each training phase.

    Where losses decide when a strategy switches, each phase is predicted for the whole budget.
    """
    worker_nodes = [node for node in nodes if node.role == "worker"]
    inapplicable_reason = explain_inapplicable_forms_of_cluster(trial.scenario, nodes, cost_model.network)
    workers, workload, switch = len(worker_nodes), trial.scenario.training_workload, strategy_phases.switch
    steps = workload.total_steps(workers)
    switch_step = planned_switch_step(switch, workload, workers) if switch else steps
    step_ranges = [(0, steps if switch_step is None else switch_step)]
    steps_per_evaluation = steps / workload.evaluation_schedule(workers).evaluation_count
    weights = [plan_initial_shares(strategy_phases.first, worker_nodes, data_order.batch)]
    if switch:
        step_ranges.append((switch_step or 0, steps))
        weights.append(switch.batch_shares_after_switch(workers))
    return [
        predict_phase(
            phase,
            cost_model.model_copy(
                update={
                    "vectors_per_exchange": phase.describe_worker_exchange().count_vectors(workload.optimiser),
                    "steps_per_evaluation": max(1, round(steps_per_evaluation)),
                    "seed": trial.seed,
                }
            ),
            plan_compute_times(
                worker_nodes, data_order, phase_weights, range(first, end), phase.describe_worker_exchange().balance
            ),
            end - first,
            steps_per_evaluation,
            inapplicable_reason,
        )
        for phase, phase_weights, (first, end) in zip(strategy_phases, weights, step_ranges, strict=True)
    ]


def predict_training_s(predictions: Sequence[PhasePrediction], second_phase: PostSwitchPhasePlan | None) -> float:
    """Return the predicted training time of all phases in virtual seconds.

    Where losses decide when a strategy switches, the prediction is the time of the slower phase for the whole budget.
    """
    phases_s = [prediction.training_s for prediction in predictions]
    return max(phases_s) if second_phase and second_phase.planned_step is None else sum(phases_s)
