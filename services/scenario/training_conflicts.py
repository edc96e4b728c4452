"""Conflicts between the keys of a scenario that trains a model: sizes, batches, strategies, speeds, events, memory."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

from services.cluster.cluster import cluster_node_names
from services.scenario.learning_task import learning_task_of
from services.schema.component import find_changed_key, find_keys_set_by_ensayo
from services.schema.conflicts import KeyConflict, prepend_parent_key
from services.schema.limits import MAX_PARAMETERS, MAX_STEPS
from services.schema.units import Duration, Operations
from services.strategies import ScenarioSizes, Strategy

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario
    from services.scenario.workload import Workload


def find_training_size_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if a trial has more training steps, or the model more parameters, than allowed."""
    workload = scenario.training_workload
    layout = workload.model.parameter_layout(learning_task_of(workload.dataset).task)
    if (parameters := layout.parameter_count) > MAX_PARAMETERS:
        message = f"the model has {parameters:,} parameters; at most {MAX_PARAMETERS:,} are allowed"
        yield KeyConflict(("workload", "model"), message)
    steps_per_epoch = workload.steps_per_epoch(scenario.cluster.workers)
    if workload.epochs * steps_per_epoch > MAX_STEPS:
        message = (
            f"{workload.epochs:,} epochs of {steps_per_epoch:,} steps are more than {MAX_STEPS:,} steps; "
            f"at most {MAX_STEPS // steps_per_epoch:,} epochs are allowed with this batch"
        )
        yield KeyConflict(("workload", "epochs"), message)


def find_unswept_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield the conflicts between keys of a scenario without a sweep.

    These conflicts can be checked only if each key has a single value.
    """
    workload = scenario.training_workload
    workers = scenario.cluster.workers
    for label, strategy in scenario.strategies.items():
        if strategy.kind == "command":
            message = "kind: command needs workload.kind: command; for a training, write for example kind: all_reduce"
            yield KeyConflict(("strategies", label, "kind"), message)
        for path in find_keys_set_by_ensayo(strategy):
            yield KeyConflict(("strategies", label, *path), f"{path[-1]} is set by Ensayo; remove it")
        conflicts = strategy.find_scenario_conflicts(_collect_scenario_sizes(scenario))
        yield from prepend_parent_key("strategies", prepend_parent_key(label, conflicts))
        if reason := strategy.explain_worker_count_conflict(workers):
            message = f"strategy {label}: {reason}, or remove strategies.{label}"
            yield KeyConflict(("cluster", "workers"), message)
    schedule_conflicts = workload.schedule.find_budget_conflicts(workload.training_budget(workers))
    yield from prepend_parent_key("workload", prepend_parent_key("schedule", schedule_conflicts))
    if workload.global_batch_size(workers) < workers:
        message = (
            f"batch ({workload.batch}) is smaller than the number of workers ({workers}); use a batch of at "
            f"least {workers}, or fewer workers"
        )
        yield KeyConflict(("workload", "batch"), message)
    yield from _find_impossible_choices(scenario)
    yield from _find_double_momentum_conflicts(scenario)
    yield from _find_format_stage_conflicts(scenario)
    yield from _find_evaluation_frequency_conflicts(scenario)
    yield from _find_promoted_worker_conflicts(scenario)
    yield from _find_missing_throughput_conflicts(scenario)
    yield from _find_operations_conflicts(scenario)
    yield from _find_slow_worker_conflicts(scenario)
    yield from _find_late_event_conflicts(scenario)
    yield from _find_unused_gpu_conflicts(scenario)
    yield from _find_memory_conflicts(scenario)
    yield from _find_micro_batch_conflicts(scenario)
    yield from _find_payload_conflicts(scenario)


def explain_impossible_candidate(scenario: "Scenario", label: str, candidate: Strategy) -> str:
    """Return why a scenario without a sweep cannot use a candidate of the strategy `label`; empty if it can."""
    conflict = _find_candidate_conflict(scenario, label, candidate)
    return conflict.message if conflict else ""


def _find_candidate_conflict(scenario: "Scenario", label: str, candidate: Strategy) -> KeyConflict | None:
    """Return the first conflict of a candidate of the strategy `label` with a scenario without a sweep.

    Conflicts between other keys, which do not depend on the candidate, do not count.
    """
    with_candidate = scenario.model_copy(update={"strategies": {label: candidate}})
    conflicts = (each for each in find_unswept_conflicts(with_candidate) if each.key_path[0] == "strategies")
    return next(conflicts, None)


def _find_impossible_choices(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every strategy that chooses among candidates, of which none is possible.

    Its message has each reason once, with the candidates that it concerns. The default list always has a possible
    candidate, an all-reduce without further keys.
    """
    for label, strategy in scenario.strategies.items():
        if not (keys_by_reason := _collect_candidate_conflicts(scenario, label, strategy)):
            continue
        why = f"none of the {len(strategy.list_candidates())} candidates is possible"
        remedy = "change the keys below, or add another candidate"
        lines = "".join(f"\n  - {_describe_keys(keys)}: {reason}" for reason, keys in keys_by_reason.items())
        yield KeyConflict(("strategies", label, "candidates"), f"{why}; {remedy}. Reasons:{lines}")


def _collect_candidate_conflicts(scenario: "Scenario", label: str, strategy: Strategy) -> dict[str, list[str]]:
    """Return the keys of the candidates of a strategy by the reason why they are not possible.

    The result is empty if a candidate is possible, or if the strategy has no candidates.
    """
    keys_by_reason: dict[str, list[str]] = {}
    for number, candidate in enumerate(strategy.list_candidates()):
        conflict = _find_candidate_conflict(scenario, label, candidate)
        if conflict is None:
            return {}
        key = ".".join(map(str, ("candidates", number, *conflict.key_path[2:])))
        keys_by_reason.setdefault(conflict.message, []).append(key)
    return keys_by_reason


def _describe_keys(keys: Sequence[str]) -> str:
    """Return the keys to change: the first one, and the number of others."""
    return keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"


def _find_double_momentum_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every strategy whose compressor adds momentum to gradients before the optimiser does."""
    optimiser = scenario.training_workload.optimiser
    for label, strategy in scenario.strategies.items():
        compressors = [phase.describe_worker_exchange().compressor for phase in strategy.training_phases()]
        kinds = [compressor.kind for compressor in compressors if compressor.applies_momentum]
        if kinds and optimiser.applies_momentum:
            message = (
                f"compressor {kinds[0]} adds momentum to gradients, and optimiser {optimiser.kind} would add momentum "
                "again; write kind: sgd in workload.optimiser, or momentum: 0 in the compressor"
            )
            yield KeyConflict(("strategies", label), message)


def _find_format_stage_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every strategy in which a compressor cannot change the size of its messages."""
    steps = scenario.training_workload.total_steps(scenario.cluster.workers)
    for label, strategy in scenario.strategies.items():
        phases = list(strategy.training_phases())
        compressors = [phase.describe_worker_exchange().compressor for phase in phases]
        stages = [stage for compressor in compressors for stage in compressor.list_format_stages()]
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


def _find_evaluation_frequency_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if a step would complete several evaluation points; the schedule has one per step."""
    workload = scenario.training_workload
    every, batch = (
        workload.evaluate_every,
        workload.global_batch_size(scenario.cluster.workers),
    )
    if every is not None and every < batch:
        message = (
            f"evaluate_every ({every} samples) is smaller than the global batch ({batch} samples), but an "
            f"evaluation follows a whole step; use at least {batch}"
        )
        yield KeyConflict(("workload", "evaluate_every"), message)


def _collect_scenario_sizes(scenario: "Scenario") -> ScenarioSizes:
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


def _find_promoted_worker_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
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


def _find_missing_throughput_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every random event if a worker has no declared throughput.

    Random events need a predicted duration of the trial, which needs the throughput of every worker.
    """
    unpaced = scenario.workers_without_throughput
    for k, event in enumerate(scenario.events):
        if unpaced and event.at.random is not None:
            message = (
                f"random events need a predicted duration, and {unpaced[0]} has no throughput to predict it from; "
                "declare a throughput or utilisation for every worker, or use time, step or share instead of random"
            )
            yield KeyConflict(("events", k, "at", "random"), message)


def _find_operations_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if operations per sample are missing for a utilisation, or have no effect."""
    workload = scenario.training_workload
    ranks = [rank for rank in range(scenario.cluster.workers) if scenario.worker_spec(rank).utilisation is not None]
    if ranks and workload.sample_operations is None:
        subject = f"payload {workload.payload}" if workload.payload else f"model {workload.model.kind}"
        message = (
            f"worker-{ranks[0]} declares a utilisation, but the operations per sample of {subject} are not known; add "
            f"for example flops_per_sample: {Operations.example}, or declare a throughput instead of the utilisation"
        )
        yield KeyConflict(("workload", "flops_per_sample"), message)
    if workload.flops_per_sample is not None and not ranks:
        message = (
            "flops_per_sample has no effect, since no worker declares a utilisation; remove it, or add for example "
            "utilisation: 0.4 and profile: h100 to cluster.worker"
        )
        yield KeyConflict(("workload", "flops_per_sample"), message)


def _find_slow_worker_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if a step of a worker takes longer than the longest duration allowed in a scenario.

    A clock that counts such times in seconds cannot represent the milliseconds of a message.
    """
    workload = scenario.training_workload
    workers = scenario.cluster.workers
    order = workload.data_order(workers, scenario.seed)
    for rank, samples in enumerate(order.share_sizes(0, (1,) * workers)):
        speed = scenario.worker_compute_speed(rank)
        if speed and samples > Duration(Duration.largest) * speed.samples_per_s:
            key = "throughput" if scenario.worker_spec(rank).throughput else "utilisation"
            message = (
                f"worker-{rank} computes {speed.samples_per_s:.3g} samples/s, so that its {samples:g} samples of a "
                f"step take more than {Duration.largest}; declare a higher {key} or speed"
            )
            yield KeyConflict(("cluster", "worker", key), message)
            return


def _find_late_event_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every event that is declared at a step after the last training step."""
    workload = scenario.training_workload
    steps = workload.total_steps(scenario.cluster.workers)
    for k, event in enumerate(scenario.events):
        if event.at.step is not None and event.at.step >= steps:
            message = (
                f"step {event.at.step} is after the end of training; the budget has steps 0 to {steps - 1}; use one of "
                "these, or declare more epochs"
            )
            yield KeyConflict(("events", k, "at", "step"), message)


def _find_unused_gpu_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if a worker must compute on a GPU, and the model does not accept its arrays."""
    workload = scenario.training_workload
    ranks = [rank for rank in range(scenario.cluster.workers) if scenario.worker_spec(rank).device == "cuda"]
    if ranks and not workload.model.computes_on_gpu:
        message = (
            f"worker-{ranks[0]} declares device: cuda, but models of kind {workload.model.kind} compute on "
            "the CPU; write device: cpu"
        )
        yield KeyConflict(("cluster", "worker", "device"), message)


def _find_memory_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if the container of a node has less memory than the packages of the model take."""
    workload = scenario.training_workload
    model = workload.model
    worker_memory = min(scenario.worker_spec(rank).memory for rank in range(scenario.cluster.workers))
    for role, memory in (("worker", worker_memory), ("server", scenario.cluster.server.memory)):
        if memory < model.min_node_memory_bytes:
            message = (
                f"a node that computes with a model of kind {model.kind} needs at least "
                f"{model.min_node_memory_bytes >> 20}MiB, more than {memory}; write for example memory: 512MiB"
            )
            yield KeyConflict(("cluster", role, "memory"), message)


def _find_micro_batch_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if no worker has a sample for each of its micro-batches."""
    workload, workers = scenario.training_workload, scenario.cluster.workers
    largest_share = max(workload.data_order(workers, scenario.seed).share_sizes(0, (1,) * workers))
    if workload.micro_batches > largest_share:
        message = (
            f"a worker's share of a batch has {largest_share} samples, too few for {workload.micro_batches} "
            f"micro-batches; use at most {largest_share}, or a larger batch"
        )
        yield KeyConflict(("workload", "micro_batches"), message)


def _find_payload_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if messages of the declared size would cross a link without a rate.

    Only containers send as many bytes as are declared. Elsewhere, such messages would take no time.
    """
    workload = scenario.training_workload
    if workload.payload is None:
        return
    servers = max(strategy.training_phases().server_count for strategy in scenario.strategies.values())
    for name in cluster_node_names(scenario.cluster.workers, servers):
        link = scenario.cluster.access_link(name)
        for key, rate in (("uplink", link.uplink), ("downlink", link.downlink)):
            if rate is None and scenario.cluster.workers + servers > 1:
                message = (
                    f"{name} has no declared {key}, so messages as large as those of {workload.payload} would "
                    f"take no time; declare uplink and downlink of workers and servers in cluster"
                )
                yield KeyConflict(("workload", "payload"), message)
                return
