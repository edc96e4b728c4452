"""Construction of the coordinator of a training, and the description of the workload in its log."""

from pathlib import Path

from services.coordinator.machine import RunStateMachine
from services.coordinator.runtime import CoordinatorRuntime
from services.coordinator.switch_machine import StrategySwitchStateMachine
from services.node.training_data import load_training_data
from services.plan import COORDINATOR, TrainingPlan
from services.runtime.clock import Clock
from services.runtime.run_log import RunLog


def make_coordinator(
    plan: TrainingPlan, clock: Clock, log: RunLog, trial_folder: Path | None = None
) -> CoordinatorRuntime:
    """Return the coordinator of a trial, and log the description of the workload.

    `trial_folder` has the checkpoints; None if none are written.
    """
    _log_mlperf_start_keys(plan, log)
    machine = RunStateMachine(
        node_names=frozenset(node.name for node in plan.nodes if node.name != COORDINATOR),
        worker_names=tuple(worker.name for worker in plan.node_plans_of_role("worker")),
        evaluation_points=plan.evaluation_schedule.evaluation_count,
        is_synchronous=plan.is_synchronous,
        target=plan.target if plan.stop_at_target else None,
        plan_sha256=plan.sha256,
        strategy_switch=_make_strategy_switch(plan),
        point_name="epoch" if plan.evaluation_schedule.is_once_per_epoch else "evaluation",
    )
    return CoordinatorRuntime(plan, machine, load_training_data(plan.dataset, plan.dtype), clock, log, trial_folder)


def _make_strategy_switch(plan: TrainingPlan) -> StrategySwitchStateMachine | None:
    switch = plan.strategy.training_phases().switch
    if switch is None:
        return None
    return StrategySwitchStateMachine(
        switch, tuple(worker.name for worker in plan.node_plans_of_role("worker")), plan.shard_owners
    )


def _log_mlperf_start_keys(plan: TrainingPlan, log: RunLog) -> None:
    """Log the keys that the compliance checker of MLCommons requires before the start of training."""
    log.log_event("cache_clear", value=True)
    log.log_start("init_start")
    for key, value in _make_mlperf_log_fields(plan).items():
        log.log_event(key, value)


def _make_mlperf_log_fields(plan: TrainingPlan) -> dict[str, object]:
    """Return the workload's properties, such as batch size and optimiser, by MLPerf log key."""
    return {
        "submission_org": "ensayo",
        "submission_platform": f"{plan.engine} engine, emulated",
        "submission_division": "open",
        "submission_status": "research",
        "submission_benchmark": plan.dataset.declared_kind,
        "submission_poc_name": plan.trial,
        "config_filename": "plan.json",
        "seed": plan.seed,
        "global_batch_size": plan.batch,
        "micro_batch_size": plan.batch // plan.workers,
        "gradient_accumulation_steps": 1,
        "train_samples": plan.train_samples,
        "eval_samples": plan.eval_samples,
        "number_of_nodes": len(plan.nodes) - 1,
        "accelerators_per_node": 1,
        "opt_name": plan.optimiser.kind,
        "opt_base_learning_rate": plan.optimiser.rate,
        "lowest_numerical_precision_in_linear": plan.precision,
        "lowest_numerical_precision_in_attn": plan.precision,
        "lowest_numerical_precision_in_comm": _communication_precision(plan),
        "tensor_parallelism": 1,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
    }


def _communication_precision(plan: TrainingPlan) -> str:
    """Return the number format of gradients on the network, as MLPerf names it."""
    kind = plan.strategy.training_phases().first.describe_worker_exchange().compressor.kind
    return plan.precision if kind == "identity" else kind
