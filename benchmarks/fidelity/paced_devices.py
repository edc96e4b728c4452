"""The row about paced devices: do many workers on few cores take the time for their steps that was declared?"""

from collections import defaultdict
from statistics import fmean, quantiles
from typing import NamedTuple

from benchmarks.fidelity.pacing_containers import pace
from benchmarks.fidelity.pacing_program import Beat
from benchmarks.fidelity.row import Gate, Line
from compose.engines.containers.engine import DockerEngine

WORKERS = (8, 16)
STEP_S, WORK_S, STEPS = 0.02, 0.001, 250


class Steps(NamedTuple):
    """Steps of all workers together, relative to what was declared."""

    mean: float  # without the barrier's own time
    p95: float
    missed: float  # share of deadlines


def paced(engine: DockerEngine, rounds: int) -> list[Line]:
    """Steps of 20 ms with 1 ms of mathematics and a barrier after each, every worker in a container of its own."""
    found: defaultdict[int, list[Steps]] = defaultdict(list)
    for _ in range(rounds):
        for workers in WORKERS:
            found[workers].append(_steps(engine.images["cpu"], workers))
    return [line for workers in WORKERS for line in _lines(workers, found[workers])]


def _steps(image: str, workers: int) -> Steps:
    told = pace(image, [Beat(rank, workers, STEPS, WORK_S, STEP_S) for rank in range(workers)])
    barrier_s = fmean(each["barrier_s"] for each in told)
    relative = [(step_s - barrier_s) / STEP_S for each in told for step_s in each["steps_s"]]
    return Steps(fmean(relative), quantiles(relative, n=20)[-1], sum(each["missed"] for each in told) / len(relative))


def _lines(workers: int, found: list[Steps]) -> list[Line]:
    means, slowest, missed = (tuple(column) for column in zip(*found, strict=True))
    who = f"{workers} paced workers"
    return [
        Line(what=f"{who}, mean step", unit="x declared", declared=1.0, samples=means, gate=Gate(median_off=0.02)),
        Line(
            what=f"{who}, step at the 95th percentile",
            unit="x declared",
            declared=1.0,
            samples=slowest,
            gate=Gate(at_most=1.05),
        ),
        Line(what=f"{who}, deadlines missed", unit="of all", declared=0.0, samples=missed, gate=Gate(at_most=0.01)),
    ]
