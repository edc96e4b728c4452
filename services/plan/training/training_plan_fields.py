"""Fields of the plan of a training, grouped by their source: scenario, workload, strategy and predictions."""

from collections.abc import Sequence
from typing import Any

from services.plan.node_plan import NodePlan
from services.plan.prediction import PhasePrediction, count_saturating_workers, explain_inapplicable_form_of_training
from services.plan.training.balance_plan import plan_balance, plan_initial_shares
from services.plan.training.compressed_traffic import compressed_traffic_ratio
from services.plan.training.phase_plans import PostSwitchPhasePlan, plan_format_stages
from services.plan.training.sent_bytes import (
    evaluation_bytes_by_worker,
    reply_bytes_by_worker,
    sent_bytes_by_node,
    sent_bytes_per_step,
)
from services.scenario.scenario import TrialSpec
from services.scenario.workload import Workload
from services.strategies import PhasesAndSwitch
from services.strategies.cost_model import CostModel
from services.strategies.speed_exchange import add_speed_exchange_bytes


def declared_fields(trial: TrialSpec) -> dict[str, Any]:
    """Return the fields of a plan that its trial and its scenario declare."""
    return {
        "trial": trial.id,
        "label": trial.label,
        "baseline": trial.baseline,
        "repeat": trial.repeat,
        "seed": trial.seed,
        "labels": trial.labels,
        "transport": trial.scenario.transport,
        "recovery": trial.scenario.recovery,
        "security": trial.scenario.security,
        "timeouts": trial.scenario.timeouts,
        "fidelity": trial.scenario.fidelity,
        "strict": trial.scenario.strict,
    }


def workload_fields(workload: Workload, worker_count: int) -> dict[str, Any]:
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


def first_phase_fields(strategy_phases: PhasesAndSwitch, workload: Workload, cost_model: CostModel) -> dict[str, Any]:
    """Return the fields of a plan that describe servers, shards and the exchange of the first training phase."""
    first, algorithm, workers = strategy_phases.first, strategy_phases.first_server_algorithm, len(cost_model.workers)
    traits = first.describe_worker_exchange()
    sent = add_speed_exchange_bytes(sent_bytes_per_step(first, cost_model, workload.optimiser), traits)
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
        "bytes_per_step": sent_bytes_by_node(sent, strategy_phases.server_count, cost_model.payload_scale),
        "reply_bytes_per_step": reply_bytes_by_worker(sent, cost_model.payload_scale),
        "evaluation_bytes": evaluation_bytes_by_worker(first, cost_model),
        "format_stages": plan_format_stages(first, cost_model, workload.optimiser),
        "compressed_traffic_ratio": compressed_traffic_ratio(first, workers, cost_model.entries, cost_model.dtype),
    }


def balance_fields(strategy_phases: PhasesAndSwitch, nodes: Sequence[NodePlan], batch: int) -> dict[str, Any]:
    """Return the fields of a plan that describe the workers' shares of a batch in the first training phase."""
    worker_nodes = [node for node in nodes if node.role == "worker"]
    balance = strategy_phases.first.describe_worker_exchange().balance
    return {
        "initial_shares": plan_initial_shares(strategy_phases.first, worker_nodes, batch),
        "balance": plan_balance(balance, worker_nodes, batch),
    }


def prediction_fields(
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
