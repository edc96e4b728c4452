"""Conflicts between the strategies of a training and the other keys of its scenario."""

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from services.compressors import applies_momentum, list_format_stages
from services.scenario.learning_task import learning_task_of
from services.schema.component import find_changed_key
from services.schema.conflicts import KeyConflict
from services.strategies import ScenarioSizes

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario
    from services.scenario.workload import Workload


def find_double_momentum_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every strategy whose compressor adds momentum to gradients before the optimiser does."""
    optimiser = scenario.training_workload.optimiser
    for label, strategy in scenario.strategies.items():
        compressors = [phase.describe_worker_exchange().compressor for phase in strategy.training_phases()]
        kinds = [compressor.kind for compressor in compressors if applies_momentum(compressor)]
        if kinds and optimiser.applies_momentum:
            message = (
                f"compressor {kinds[0]} adds momentum to gradients, and optimiser {optimiser.kind} would add momentum "
                "again; write kind: sgd in workload.optimiser, or momentum: 0 in the compressor"
            )
            yield KeyConflict(("strategies", label), message)


def find_format_stage_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every strategy in which a compressor cannot change the size of its messages."""
    steps = scenario.training_workload.total_steps(scenario.cluster.workers)
    for label, strategy in scenario.strategies.items():
        phases = list(strategy.training_phases())
        compressors = [phase.describe_worker_exchange().compressor for phase in phases]
        stages = [stage for compressor in compressors for stage in list_format_stages(compressor)]
        if not stages:
            continue
        key = ("strategies", label, *find_changed_key(strategy, "warm_up_steps"))
        if len(phases) > 1:
            why = f"a warm-up of a compressor is not supported inside {strategy.kind}"
            yield KeyConflict(key, f"{why}; remove warm_up_steps")
        elif not phases[0].list_format_stages():
            why = f"strategy {strategy.kind} needs messages of equal sizes in all steps"
            yield KeyConflict(key, f"{why}; remove warm_up_steps, or use strategy all_reduce")
        elif stages[-1].end > steps:
            why = f"the warm-up ({stages[-1].end} steps) is longer than the run ({steps} steps)"
            most = steps // len(stages) * len(stages)
            remedy = f"use at most {most} (the largest multiple of {len(stages)} within the run)"
            remedy = remedy if most else "remove warm_up_steps"
            yield KeyConflict(key, f"{why}; {remedy}, or declare more epochs")


def collect_scenario_sizes(scenario: "Scenario") -> ScenarioSizes:
    """Return the sizes of a training and its cluster with which the keys of a strategy may conflict."""
    workload = scenario.training_workload
    workers = scenario.cluster.workers
    layout = workload.model.parameter_layout(learning_task_of(workload.dataset).task)
    return ScenarioSizes(
        workers=workers,
        steps=workload.total_steps(workers),
        steps_per_epoch=workload.steps_per_epoch(workers),
        evaluations=workload.evaluation_schedule(workers).evaluation_count,
        array_sizes=tuple(prod(shape) for _, shape in layout.arrays),
        array_shapes=tuple(shape for _, shape in layout.arrays),
        has_declared_payload=workload.payload is not None,
        micro_batches=workload.micro_batches,
        has_link_rates=scenario.cluster.has_link_rate_limits,
        whole_vector_need=workload.whole_vector_need,
        batch=workload.global_batch_size(workers),
        declared_speeds=tuple(
            speed.samples_per_s if (speed := scenario.worker_compute_speed(rank)) else None for rank in range(workers)
        ),
        equal_shares_need=_explain_equal_shares_need(workload, workers),
    )


def _explain_equal_shares_need(workload: "Workload", worker_count: int) -> str:
    """Return why all workers need equal shares of a batch, and how to avoid it; empty if they do not."""
    if workload.summarise_parts(worker_count).sizes:
        return (
            f"partition {workload.partition.kind} gives each worker samples of its own, whose number decides its share "
            "of a batch; use partition iid, or balance uniform"
        )
    reason = workload.model.explain_share_dependence()
    return f"{reason}, or balance uniform" if reason else ""


def find_promoted_worker_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if workers own samples that are not used after a switch, because the workers then serve."""
    workload = scenario.training_workload
    if not workload.summarise_parts(scenario.cluster.workers).sizes:
        return
    for label, strategy in scenario.strategies.items():
        switch = strategy.training_phases().switch
        if switch and 0 in (shares := switch.batch_shares_after_switch(scenario.cluster.workers)):
            message = (
                f"strategy {label} turns worker-{shares.index(0)} into a server, so that the samples which it owns "
                f"would not be used after the switch; use partition iid, or another placement in strategies.{label}"
            )
            yield KeyConflict(("workload", "partition"), message)
