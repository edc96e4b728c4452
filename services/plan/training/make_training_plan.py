"""Planning of a trial that trains a model: all decisions that are possible before the trial starts."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from services.cluster.addresses import AddressAllocator, DummyAddresses
from services.cluster.events import mean_time_between_failures_s, plan_event_occurrences
from services.learning.layout import ParameterLayout
from services.plan.candidates.candidate_plans import plan_best_candidate
from services.plan.cost import (
    DTYPE_BY_PRECISION,
    ModelVector,
    build_cost_model,
    choose_message_size_limits,
    plan_compute_times,
)
from services.plan.nodes import get_auto_collective_sizes, plan_network, plan_nodes
from services.plan.training.balance_plan import plan_initial_shares
from services.plan.training.phase_plans import plan_post_switch_phase
from services.plan.training.phase_predictions import predict_phases, predict_training_s
from services.plan.training.training_plan import TrainingPlan
from services.plan.training.training_plan_fields import (
    balance_fields,
    declared_fields,
    first_phase_fields,
    prediction_fields,
    workload_fields,
)
from services.scenario.learning_task import learning_task_of
from services.scenario.run_settings import EngineName
from services.scenario.scenario import AUTO, TrialSpec

EVENT_HORIZON_FACTOR = 3.0  # random events are drawn for this multiple of the predicted duration of a trial


def make_training_plan(
    trial: TrialSpec,
    run_id: str,
    engine: EngineName,
    address_allocator: AddressAllocator,
    question: str = "",
    *,
    dilation: float = 1.0,
    alpha_s: float = 0.0,
) -> TrainingPlan:
    """Return the plan of one trial that trains a model.

    The same arguments give the same plan. A strategy `auto` is replaced by the candidate with the least predicted step
    time.

    Args:
        trial: the trial of a scenario.
        run_id: identifier of the run.
        engine: name of the engine that will start the nodes.
        address_allocator: source of addresses that are free for the nodes.
        question: research question that the scenario states, shown in the report.
        dilation: factor by which virtual time is slower than real time, for a scenario with `dilation: auto`.
        alpha_s: wall seconds that this host adds to a message, as calibrated; 0 without calibration.
    """
    plan_trial = partial(
        _plan_declared_strategy,
        run_id=run_id,
        engine=engine,
        address_allocator=address_allocator,
        question=question,
        dilation=dilation,
        alpha_s=alpha_s,
    )
    if trial.strategy.kind == "auto":
        return plan_best_candidate(trial, trial.strategy, plan_trial)
    return plan_trial(trial)


def _plan_declared_strategy(
    trial: TrialSpec,
    run_id: str,
    engine: EngineName,
    address_allocator: AddressAllocator,
    question: str,
    dilation: float,
    alpha_s: float,
) -> TrainingPlan:
    """Return the plan of one trial whose strategy is not chosen among candidates.

    The arguments are those of `make_training_plan`.
    """
    scenario, workload, workers = trial.scenario, trial.scenario.training_workload, trial.scenario.cluster.workers
    task, _ = learning_task_of(workload.dataset)
    layout, payload = workload.model.parameter_layout(task), workload.planned_payload
    dtype, scale = DTYPE_BY_PRECISION[workload.precision], payload.scale if payload else 1.0
    vector = ModelVector(layout.parameter_count, dtype, scale)
    nodes = plan_nodes(scenario, trial.strategy.training_phases().server_count, address_allocator, engine)
    network = plan_network(scenario, nodes)
    trial_dilation = dilation if scenario.dilation == AUTO else scenario.dilation
    lengths = choose_message_size_limits(
        engine, scenario.transport, vector.size_bytes, is_declared_size=payload is not None
    )
    cost = build_cost_model(nodes, network, vector, alpha_s / trial_dilation, lengths)
    site = get_auto_collective_sizes(
        scenario,
        nodes,
        tuple(shape for _, shape in layout.arrays),
        _flops_by_array(workload.model.forward_flops(task), layout),
        vector.entry_bytes,
        cost,
        tuple(name for name, _ in layout.arrays),
    )
    worker_nodes = [node for node in nodes if node.role == "worker"]
    data_order, first_phase = workload.data_order(workers, trial.seed), trial.strategy.training_phases().first
    first_step = plan_compute_times(
        worker_nodes,
        data_order,
        plan_initial_shares(first_phase, worker_nodes, data_order.batch),
        range(1),
        first_phase.describe_worker_exchange().balance,
    )
    strategy, exchange_s_by_choice = trial.strategy.resolve_auto_collective(
        site, cost.model_copy(update={"step_compute_times": first_step})
    )
    phases = strategy.training_phases()
    predictions = predict_phases(phases, trial, nodes, cost, data_order)
    second_phase = plan_post_switch_phase(phases, trial, cost, predictions[-1].step)
    predicted_s = predict_training_s(predictions, second_phase)
    return TrainingPlan(
        run=run_id,
        engine=engine,
        question=question,
        strategy=strategy,
        nodes=nodes,
        network=network,
        dilation=trial_dilation,
        alpha_s=cost.alpha_s,
        exchange_s_by_choice=exchange_s_by_choice,
        second_phase=second_phase,
        predicted_s=predicted_s,
        **declared_fields(trial),
        **workload_fields(workload, workers),
        **first_phase_fields(phases, workload, cost),
        **balance_fields(phases, nodes, workload.global_batch_size(workers)),
        **prediction_fields(phases, cost, predictions, second_phase),
        **_event_fields(trial, predicted_s * EVENT_HORIZON_FACTOR),
    )


def _flops_by_array(forward_flops: Mapping[str, float], layout: ParameterLayout) -> tuple[float, ...]:
    """Return the operations of a forward pass by array, in the order of the parameter vector.

    Return an empty tuple if they are not known by array.
    """
    if not forward_flops.keys() <= {name for name, _ in layout.arrays} or not sum(forward_flops.values()):
        return ()
    return tuple(forward_flops.get(name, 0.0) for name, _ in layout.arrays)


def _event_fields(trial: TrialSpec, horizon_s: float) -> dict[str, Any]:
    """Return the fields of a plan that describe events; random events are drawn up to `horizon_s`."""
    scenario = trial.scenario
    steps = scenario.training_workload.total_steps(scenario.cluster.workers)
    return {
        "events": plan_event_occurrences(scenario.events, steps, horizon_s, trial.seed, trial.event_positions),
        "horizon_s": horizon_s if any(event.at.mean_gap_s for event in scenario.events) else None,
        "failure_interval_s": mean_time_between_failures_s(scenario.events),
    }


def random_event_horizon_s(trial: TrialSpec) -> float:
    """Return the virtual time in seconds at which the random events of a trial end.

    It is computed from the predicted time of the trial without events.
    """
    scenario = trial.scenario.model_copy(update={"events": ()})
    plan = make_training_plan(trial.model_copy(update={"scenario": scenario}), "", "simulated", DummyAddresses())
    return plan.predicted_s * EVENT_HORIZON_FACTOR
