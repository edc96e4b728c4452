"""Planning of a trial that trains a model: all decisions that are possible before the trial starts."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from services.cluster.addresses import AddressAllocator, DummyAddresses
from services.cluster.events import plan_event_occurrences
from services.learning.data_order import DataOrder
from services.learning.layout import ParameterLayout
from services.learning.optimisers import AnyOptimiser
from services.plan.balance_plan import plan_balance, plan_initial_shares
from services.plan.candidate_plans import plan_best_candidate
from services.plan.compressed_traffic import compressed_traffic_ratio
from services.plan.cost import (
    DTYPE_BY_PRECISION,
    ModelVector,
    build_cost_model,
    choose_message_size_limits,
    plan_compute_times,
)
from services.plan.node_plan import NodePlan
from services.plan.nodes import get_auto_collective_sizes, plan_network, plan_nodes
from services.plan.plan import FormatStagePlan, PostSwitchPhasePlan, TrainingPlan
from services.plan.prediction import (
    PhasePrediction,
    count_saturating_workers,
    explain_inapplicable_form_of_training,
    explain_inapplicable_forms_of_cluster,
    predict_latency_s,
    predict_phase,
)
from services.scenario.learning_task import learning_task_of
from services.scenario.run_settings import EngineName
from services.scenario.scenario import AUTO, TrialSpec
from services.scenario.workload import Workload
from services.strategies import PhasesAndSwitch, SinglePhaseStrategy
from services.strategies.base import BytesPerStep
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.speed_exchange import add_speed_exchange_bytes
from services.strategies.switching.switch import TrainingPhaseSwitch

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
    predictions = _predict_phases(phases, trial, nodes, cost, data_order)
    second_phase = _plan_post_switch_phase(phases, trial, cost, predictions[-1].step)
    predicted_s = _predict_training_s(predictions, second_phase)
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
        **_declared_fields(trial),
        **_workload_fields(workload, workers),
        **_first_phase_fields(phases, workload, cost),
        **_balance_fields(phases, nodes, workload.global_batch_size(workers)),
        **_prediction_fields(phases, cost, predictions, second_phase),
        **_event_fields(trial, predicted_s * EVENT_HORIZON_FACTOR),
    )


def _flops_by_array(forward_flops: Mapping[str, float], layout: ParameterLayout) -> tuple[float, ...]:
    """Return the operations of a forward pass by array, in the order of the parameter vector.

    Return an empty tuple if they are not known by array.
    """
    if not forward_flops.keys() <= {name for name, _ in layout.arrays} or not sum(forward_flops.values()):
        return ()
    return tuple(forward_flops.get(name, 0.0) for name, _ in layout.arrays)


def _declared_fields(trial: TrialSpec) -> dict[str, Any]:
    """Return the fields of a plan that its trial and its scenario declare."""
    return {
        "trial": trial.id,
        "label": trial.label,
        "baseline": trial.baseline,
        "repeat": trial.repeat,
        "seed": trial.seed,
        "labels": trial.labels,
        "transport": trial.scenario.transport,
        "security": trial.scenario.security,
        "timeouts": trial.scenario.timeouts,
        "fidelity": trial.scenario.fidelity,
        "strict": trial.scenario.strict,
    }


def _workload_fields(workload: Workload, worker_count: int) -> dict[str, Any]:
    """Return the fields of a plan that describe data, model, batch, schedule and training budget."""
    dataset, parts = workload.dataset.as_nodes_load_it(), workload.summarise_parts(worker_count)
    description = dataset.describe()
    return {
        "dataset": dataset,
        "model": workload.model,
        "workload_optimiser": workload.optimiser,
        "rate_schedule": workload.schedule.convert_steps(workload.training_budget(worker_count)),
        "clip_norm": workload.clip_norm,
        "batch_rate_factor": workload.batch_rate_factor(worker_count),
        "precision": workload.precision,
        "payload": workload.planned_payload,
        "batch": workload.global_batch_size(worker_count),
        "micro_batches": workload.micro_batches,
        "epochs": workload.epochs,
        "target": workload.target,
        "stop_at_target": workload.stop == "target",
        "train_samples": description.train_samples,
        "eval_samples": description.test_samples,
        "steps_per_epoch": workload.steps_per_epoch(worker_count),
        "evaluate_every": workload.evaluation_schedule(worker_count).samples_between,
        "steps": workload.total_steps(worker_count),
        "workers": worker_count,
        "order": workload.order,
        "partition": workload.partition,
        "part_sizes": parts.sizes,
        "class_counts": parts.class_counts,
    }


def _first_phase_fields(strategy_phases: PhasesAndSwitch, workload: Workload, cost_model: CostModel) -> dict[str, Any]:
    """Return the fields of a plan that describe servers, shards and the exchange of the first training phase."""
    first, algorithm, workers = strategy_phases.first, strategy_phases.first_server_algorithm, len(cost_model.workers)
    traits = first.describe_worker_exchange()
    sent = add_speed_exchange_bytes(_sent_bytes_per_step(first, cost_model, workload.optimiser), traits)
    return {
        "optimiser": first.scale_learning_rate(workload.scale_rate_by_batch(workers), workers),
        "parameters": cost_model.entries,
        "vector_bytes": cost_model.vector_bytes,
        "servers": strategy_phases.server_count,
        "shards": algorithm.shard_ranges(workers, cost_model.entries) if algorithm else (),
        "shard_owners": algorithm.shard_owners(cost_model.workers, cost_model.servers) if algorithm else (),
        "schedule": first.collective_schedule(workers),
        "is_synchronous": traits.is_synchronous,
        "is_gossip": traits.is_gossip,
        "exchange_period": traits.exchange_period,
        "exchanges_per_period": traits.exchanges_per_period,
        "sums_per_exchange": traits.sums_per_exchange,
        "chooses_partners": traits.partner_byte_bounds is not None,
        "bytes_per_step": _sent_bytes_by_node(sent, strategy_phases.server_count, cost_model.payload_scale),
        "reply_bytes_per_step": _reply_bytes_by_worker(sent, cost_model.payload_scale),
        "evaluation_bytes": _evaluation_bytes_by_worker(first, cost_model),
        "format_stages": _plan_format_stages(first, cost_model, workload.optimiser),
        "compressed_traffic_ratio": compressed_traffic_ratio(first, workers, cost_model.entries, cost_model.dtype),
    }


def _plan_format_stages(
    strategy: SinglePhaseStrategy, cost_model: CostModel, optimiser: AnyOptimiser
) -> tuple[FormatStagePlan, ...]:
    """Return the stages of the first steps, in which messages have other sizes than in all later steps."""
    traits = strategy.describe_worker_exchange()
    stages = [
        (end, add_speed_exchange_bytes(_sent_bytes_per_step(stage, cost_model, optimiser), traits))
        for end, stage in strategy.list_format_stages()
    ]
    return tuple(
        FormatStagePlan(end_step=end, bytes_per_step=_sent_bytes_by_node(sent, 0, cost_model.payload_scale))
        for end, sent in stages
    )


def _balance_fields(strategy_phases: PhasesAndSwitch, nodes: Sequence[NodePlan], batch: int) -> dict[str, Any]:
    """Return the fields of a plan that describe the workers' shares of a batch in the first training phase."""
    worker_nodes = [node for node in nodes if node.role == "worker"]
    balance = strategy_phases.first.describe_worker_exchange().balance
    return {
        "initial_shares": plan_initial_shares(strategy_phases.first, worker_nodes, batch),
        "balance": plan_balance(balance, worker_nodes, batch),
    }


def _prediction_fields(
    strategy_phases: PhasesAndSwitch,
    cost_model: CostModel,
    predictions: Sequence[PhasePrediction],
    second_phase: PostSwitchPhasePlan | None,
) -> dict[str, Any]:
    """Return the fields of a plan that describe its predicted times, except the training time."""
    full_batch_times = predictions[0].compute_times.only_full_batch_rounds(1)
    return {
        "predicted": predictions[0].step,
        "training_inapplicable_reason": explain_inapplicable_form_of_training(
            predictions, is_switch_planned=second_phase is None or second_phase.planned_step is not None
        ),
        "saturation_workers": count_saturating_workers(
            strategy_phases, cost_model.model_copy(update={"step_compute_times": full_batch_times})
        ),
    }


def _event_fields(trial: TrialSpec, horizon_s: float) -> dict[str, Any]:
    """Return the fields of a plan that describe events; random events are drawn up to `horizon_s`."""
    scenario = trial.scenario
    steps = scenario.training_workload.total_steps(scenario.cluster.workers)
    return {
        "events": plan_event_occurrences(scenario.events, steps, horizon_s, trial.seed),
        "horizon_s": horizon_s if any(event.at.random for event in scenario.events) else None,
    }


def random_event_horizon_s(trial: TrialSpec) -> float:
    """Return the virtual time in seconds at which the random events of a trial end.

    It is computed from the predicted time of the trial without events.
    """
    scenario = trial.scenario.model_copy(update={"events": ()})
    plan = make_training_plan(trial.model_copy(update={"scenario": scenario}), "", "simulated", DummyAddresses())
    return plan.predicted_s * EVENT_HORIZON_FACTOR


def _predict_phases(
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
    switch_step = _planned_switch_step(switch, workload, workers) if switch else steps
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


def _planned_switch_step(switch: TrainingPhaseSwitch, workload: Workload, worker_count: int) -> int | None:
    """Return the step at which a strategy switches.

    Return None if losses decide, or if it never switches.
    """
    return switch.rule.planned_switch_step(workload.total_steps(worker_count), workload.steps_per_epoch(worker_count))


def _plan_post_switch_phase(
    strategy_phases: PhasesAndSwitch, trial: TrialSpec, cost_model: CostModel, predicted: StepTimePrediction
) -> PostSwitchPhasePlan | None:
    """Return the plan of the training phase after a strategy switch.

    Return None if there is no switch.
    """
    switch = strategy_phases.switch
    if switch is None:
        return None
    workload, workers, servers = trial.scenario.training_workload, len(cost_model.workers), strategy_phases.server_count
    scale = cost_model.payload_scale
    optimiser = switch.optimiser_after_switch(workload.scale_rate_by_batch(workers), workers)
    sent = _sent_bytes_per_step(switch.second, cost_model, optimiser)
    slots = len(optimiser.init_state(np.zeros(1)).slots)
    transfer_bytes = switch.max_transfer_bytes(workers, cost_model.entries, cost_model.dtype, slots)
    return PostSwitchPhasePlan(
        planned_step=_planned_switch_step(switch, workload, workers),
        optimiser=optimiser,
        schedule=switch.second.collective_schedule(workers),
        exchange_period=switch.second.describe_worker_exchange().exchange_period,
        exchanges_per_period=switch.second.describe_worker_exchange().exchanges_per_period,
        bytes_per_step=_sent_bytes_by_node(sent, servers, scale),
        reply_bytes_per_step=_reply_bytes_by_worker(sent, scale),
        predicted=predicted,
        is_synchronous=switch.second.describe_worker_exchange().is_synchronous,
        worker_weights=switch.batch_shares_after_switch(workers),
        latencies_s=(
            predict_latency_s(switch.first, cost_model),
            predict_latency_s(switch.second, cost_model),
        ),
        model_transfer_bytes={
            node: round(size) for node, size in _sent_bytes_by_node(transfer_bytes, servers, scale).items()
        },
        compressed_traffic_ratio=compressed_traffic_ratio(switch.second, workers, cost_model.entries, cost_model.dtype),
        sums_per_exchange=switch.second.describe_worker_exchange().sums_per_exchange,
        drops_compressor_state=switch.first.describe_worker_exchange().has_compressor_state,
    )


def _sent_bytes_per_step(
    phase: SinglePhaseStrategy, cost_model: CostModel, worker_optimiser: AnyOptimiser
) -> BytesPerStep:
    """Return the payload bytes that each node sends per step of a training phase, in all vectors of its exchanges."""
    sent = phase.sent_bytes_per_step(len(cost_model.workers), cost_model.entries, cost_model.dtype)
    return sent.multiply(phase.describe_worker_exchange().count_vectors(worker_optimiser))


def _evaluation_bytes_by_worker(phase: SinglePhaseStrategy, cost_model: CostModel) -> dict[str, float]:
    """Return the payload bytes that each worker sends before an evaluation; empty if the strategy exchanges nothing."""
    evaluation_sum = phase.describe_worker_exchange().evaluation_sum
    if evaluation_sum is None:
        return {}
    sent = evaluation_sum.sent_bytes_by_rank(len(cost_model.workers), cost_model.entries, cost_model.dtype)
    return _sent_bytes_by_node(BytesPerStep(sent), 0, cost_model.payload_scale) if any(sent) else {}


def _predict_training_s(predictions: Sequence[PhasePrediction], second_phase: PostSwitchPhasePlan | None) -> float:
    """Return the predicted training time of all phases in virtual seconds.

    Where losses decide when a strategy switches, the prediction is the time of the slower phase for the whole budget.
    """
    phases_s = [prediction.training_s for prediction in predictions]
    return max(phases_s) if second_phase and second_phase.planned_step is None else sum(phases_s)


def _reply_bytes_by_worker(sent_bytes_by_role: BytesPerStep, payload_scale: float) -> dict[str, float]:
    """Return the bytes that each worker's server shard sends to other workers per step.

    The bytes are those of payloads on the wire, by node name.
    """
    return {
        f"worker-{rank}": _scale_bytes(size_bytes, payload_scale)
        for rank, size_bytes in enumerate(sent_bytes_by_role.replies)
    }


def _sent_bytes_by_node(sent_bytes_by_role: BytesPerStep, server_count: int, payload_scale: float) -> dict[str, float]:
    """Return the payload bytes on the wire that each node sends per step, by node name.

    The value is 0 for servers that are not used.
    """
    worker_bytes = {f"worker-{rank}": size_bytes for rank, size_bytes in enumerate(sent_bytes_by_role.workers)}
    server_bytes = sent_bytes_by_role.servers or (0,) * server_count
    sent = worker_bytes | {f"server-{rank}": size_bytes for rank, size_bytes in enumerate(server_bytes)}
    return {name: _scale_bytes(size_bytes, payload_scale) for name, size_bytes in sent.items()}


def _scale_bytes(size_bytes: float, payload_scale: float) -> float:
    """Return the bytes on the wire for bytes of the trained model's vector; the same number without a payload."""
    return size_bytes if payload_scale == 1 else size_bytes * payload_scale
