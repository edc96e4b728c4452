"""Conflicts between the keys of a scenario that runs a training command of the user."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.cluster.events import WorkerPause, WorkerSlowdown
from services.scenario.commands.command_workload import CommandWorkload
from services.schema.conflicts import KeyConflict, prepend_parent_key
from services.schema.units import Bytes, Operations
from services.strategies import ScenarioSizes

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario

MIN_WORKER_MEMORY = Bytes("384MiB")  # Python, PyTorch and the node's own process, without any model


def find_command_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield the conflicts between the keys of a scenario without a sweep whose workload is a command."""
    yield from _find_strategy_conflicts(scenario)
    yield from _find_engine_conflicts(scenario)
    yield from _find_speed_conflicts(scenario)
    yield from _find_event_conflicts(scenario)
    yield from _find_worker_conflicts(scenario)
    if scenario.recovery.changes_membership:
        message = (
            f"on_failure: {scenario.recovery.on_failure} needs workload.kind: training: Ensayo can't change the "
            "workers of a running command; write on_failure: abort"
        )
        yield KeyConflict(("recovery", "on_failure"), message)


def _find_strategy_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    sizes = ScenarioSizes(
        workers=scenario.cluster.workers,
        steps=1,
        steps_per_epoch=1,
        evaluations=1,
        array_sizes=(1,),
        has_link_rates=scenario.cluster.has_link_rate_limits,
    )
    for label, strategy in scenario.strategies.items():
        if strategy.kind != "command":
            message = (
                f"strategy {strategy.kind} needs workload.kind: training; for a command, write kind: command, and "
                "process_group: ensayo to use collectives of Ensayo"
            )
            yield KeyConflict(("strategies", label, "kind"), message)
        else:
            yield from prepend_parent_key(
                "strategies", prepend_parent_key(label, strategy.find_scenario_conflicts(sizes))
            )


def _find_engine_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    workload = scenario.workload
    if scenario.engine == "simulated":
        message = "a command runs in real processes; use engine docker or local"
        yield KeyConflict(("engine",), message)
    if scenario.engine == "local" and isinstance(workload, CommandWorkload) and workload.image:
        message = "image needs containers; write engine: docker, or use requirements or python in place of image"
        yield KeyConflict(("workload", "image"), message)


def _find_speed_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if operations per sample are missing for a utilisation, or have no effect."""
    ranks = [rank for rank in range(scenario.cluster.workers) if scenario.worker_spec(rank).utilisation is not None]
    if ranks and scenario.workload.sample_operations is None:
        message = (
            f"worker-{ranks[0]} declares a utilisation, but the operations per sample of the command are not known; "
            f"add for example flops_per_sample: {Operations.example}, or declare a throughput instead"
        )
        yield KeyConflict(("workload", "flops_per_sample"), message)
    if scenario.workload.flops_per_sample is not None and not ranks:
        message = (
            "flops_per_sample has no effect, since no worker declares a utilisation; remove it, or add for example "
            "utilisation: 0.4 and profile: h100 to cluster.worker"
        )
        yield KeyConflict(("workload", "flops_per_sample"), message)


def _find_event_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    unpaced = scenario.workers_without_throughput
    for number, event in enumerate(scenario.events):
        drawn = event.at.mean_gap_s is not None
        for key in (*(("share",) if event.at.share is not None else ()), *(event.at.mean_gap_key[:1] if drawn else ())):
            message = f"the duration of a command is not known before it ends; use time or step instead of {key}"
            yield KeyConflict(("events", number, "at", key), message)
        if event.applied_by == "transport":
            message = (
                f"the event {event.kind} needs workload.kind: training; Ensayo does not send the messages of a command"
            )
            yield KeyConflict(("events", number, "kind"), message)
        if event.applied_by == "disk":
            message = (
                f"the event {event.kind} needs workload.kind: training; Ensayo does not write the checkpoints of a "
                "command"
            )
            yield KeyConflict(("events", number, "kind"), message)
        if unpaced and isinstance(event, WorkerSlowdown | WorkerPause):
            message = (
                f"{unpaced[0]} runs the command as fast as this host, so its compute can't be slowed down; declare a "
                "throughput for every worker"
            )
            yield KeyConflict(("events", number, "kind"), message)


def _find_worker_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    for rank in range(scenario.cluster.workers):
        spec = scenario.worker_spec(rank)
        if spec.device == "cuda":
            message = f"worker-{rank} declares device: cuda, but commands run on the CPU; write device: cpu"
            yield KeyConflict(("cluster", "worker", "device"), message)
            return
        if spec.memory < MIN_WORKER_MEMORY:
            message = f"{spec.memory} is too small for a worker that runs a command; write at least {MIN_WORKER_MEMORY}"
            yield KeyConflict(("cluster", "worker", "memory"), message)
            return
