"""Conflicts between the keys of a scenario that trains a model: sizes, budget, evaluations, candidates and events."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from services.cluster.cluster import cluster_node_names
from services.scenario.conflicts.strategy_conflicts import (
    collect_scenario_sizes,
    find_double_momentum_conflicts,
    find_format_stage_conflicts,
    find_promoted_worker_conflicts,
)
from services.scenario.conflicts.worker_conflicts import (
    find_memory_conflicts,
    find_missing_throughput_conflicts,
    find_operations_conflicts,
    find_slow_worker_conflicts,
    find_unused_gpu_conflicts,
)
from services.scenario.learning_task import learning_task_of
from services.schema.component import find_keys_set_by_ensayo
from services.schema.conflicts import KeyConflict, prepend_parent_key
from services.schema.limits import MAX_PARAMETERS, MAX_STEPS
from services.strategies import Strategy

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario


MAX_LISTED_KEYS = 4


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
        conflicts = strategy.find_scenario_conflicts(collect_scenario_sizes(scenario))
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
    yield from find_double_momentum_conflicts(scenario)
    yield from find_format_stage_conflicts(scenario)
    yield from _find_evaluation_frequency_conflicts(scenario)
    yield from find_promoted_worker_conflicts(scenario)
    yield from find_missing_throughput_conflicts(scenario)
    yield from find_operations_conflicts(scenario)
    yield from find_slow_worker_conflicts(scenario)
    yield from _find_late_event_conflicts(scenario)
    yield from find_unused_gpu_conflicts(scenario)
    yield from find_memory_conflicts(scenario)
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
    if reason := candidate.explain_worker_count_conflict(scenario.cluster.workers):
        return KeyConflict(("strategies", label, "kind"), reason)
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
    """Return the keys to change; of more than MAX_LISTED_KEYS, the first ones and the number of others."""
    others = len(keys) - MAX_LISTED_KEYS
    return ", ".join(keys[:MAX_LISTED_KEYS]) + (f" and {others} other keys" if others > 0 else "")


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
