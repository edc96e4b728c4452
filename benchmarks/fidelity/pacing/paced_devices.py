"""Fidelity row about paced devices: whether the steps of many workers on few cores take the declared time."""

from collections import defaultdict
from statistics import fmean, quantiles
from typing import NamedTuple

from benchmarks.fidelity.pacing.containers import run_pacing_workers
from benchmarks.fidelity.pacing.program import PacingTask
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from compose.engines.containers.engine import DockerEngine

WORKER_COUNTS = (8, 16)
STEP_S, COMPUTE_S, STEP_COUNT = 0.02, 0.001, 250


class RelativeSteps(NamedTuple):
    """Step times of all workers of a round, relative to the declared step time."""

    mean: float  # without the time of the barrier
    p95: float  # 95th percentile, without the time of the barrier
    missed_share: float  # share of missed deadlines


def measure_paced_workers(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure steps of 20 ms with 1 ms of compute and a barrier after each, with every worker in its own container."""
    rounds_by_workers: defaultdict[int, list[RelativeSteps]] = defaultdict(list)
    for _ in range(rounds):
        for worker_count in WORKER_COUNTS:
            rounds_by_workers[worker_count].append(_measure_steps(engine.images["cpu"], worker_count))
    return [
        measurement
        for worker_count in WORKER_COUNTS
        for measurement in _step_measurements(worker_count, rounds_by_workers[worker_count])
    ]


def _measure_steps(image_tag: str, worker_count: int) -> RelativeSteps:
    tasks = [PacingTask(rank, worker_count, STEP_COUNT, COMPUTE_S, STEP_S) for rank in range(worker_count)]
    results = run_pacing_workers(image_tag, tasks)
    barrier_s = fmean(result["barrier_s"] for result in results)
    relative = [(step_s - barrier_s) / STEP_S for result in results for step_s in result["steps_s"]]
    missed_share = sum(result["missed_deadlines"] for result in results) / len(relative)
    return RelativeSteps(fmean(relative), quantiles(relative, n=20)[-1], missed_share)


def _step_measurements(worker_count: int, rounds_of_steps: list[RelativeSteps]) -> list[FidelityMeasurement]:
    means, slowest, missed = (tuple(column) for column in zip(*rounds_of_steps, strict=True))
    workers = f"{worker_count} paced workers"
    return [
        FidelityMeasurement(
            what=f"{workers}, mean step",
            unit="times the declared step",
            declared=1.0,
            samples=means,
            gate=FidelityGate(median_off=0.02),
        ),
        FidelityMeasurement(
            what=f"{workers}, step at the 95th percentile",
            unit="times the declared step",
            declared=1.0,
            samples=slowest,
            gate=FidelityGate(at_most=1.05),
        ),
        FidelityMeasurement(
            what=f"{workers}, missed deadlines",
            unit="of all",
            declared=0.0,
            samples=missed,
            gate=FidelityGate(at_most=0.01),
        ),
    ]
