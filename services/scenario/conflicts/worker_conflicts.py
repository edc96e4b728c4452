"""Conflicts between a training and the workers that compute it: their speed, their device and their memory."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.schema.conflicts import KeyConflict
from services.schema.units import Duration, Operations

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario


def find_missing_throughput_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every random event if a worker has no declared throughput.

    Random events need a predicted duration of the trial, which needs the throughput of every worker.
    """
    unpaced = scenario.workers_without_throughput
    for k, event in enumerate(scenario.events):
        if unpaced and event.at.mean_gap_s is not None:
            message = (
                f"random events need a predicted duration, and {unpaced[0]} has no throughput to predict it from; "
                "declare a throughput or utilisation for every worker, or use time, step or share instead of "
                f"{event.at.mean_gap_key[0]}"
            )
            yield KeyConflict(("events", k, "at", event.at.mean_gap_key[0]), message)


def find_operations_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
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


def find_slow_worker_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
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


def find_unused_gpu_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if a worker must compute on a GPU, and the model does not accept its arrays."""
    workload = scenario.training_workload
    ranks = [rank for rank in range(scenario.cluster.workers) if scenario.worker_spec(rank).device == "cuda"]
    if ranks and not workload.model.computes_on_gpu:
        message = (
            f"worker-{ranks[0]} declares device: cuda, but models of kind {workload.model.kind} compute on "
            "the CPU; write device: cpu"
        )
        yield KeyConflict(("cluster", "worker", "device"), message)


def find_memory_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
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
