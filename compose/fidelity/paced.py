"""How long do steps take that were declared, on workers that are paced or held by a CPU quota?"""

from collections.abc import Mapping, Sequence
from statistics import fmean, quantiles
from typing import Any

from compose.engines.pacers import pace
from services.component import Record
from services.pacing_probe import Beat

STEPS = 250


class Steps(Record):
    """Steps of all workers together, against what was declared."""

    workers: int
    declared_s: float
    mean_s: float  # of paced workers without the barrier's own time
    p95_s: float
    barrier_s: float
    missed: float  # share of deadlines; 0 where there are none

    @property
    def inflation(self) -> float:
        """Relative error of the mean step."""
        return self.mean_s / self.declared_s - 1


def paced(image: str, workers: int, step_s: float = 0.02, work_s: float = 0.001, steps: int = STEPS) -> Steps:
    """Paced workers with a barrier after every step, each in a container of its own.

    Args:
        image: of nodes.
        workers: how many.
        step_s: what the device takes for a step.
        work_s: real mathematics in a step, seconds of a core.
        steps: counted.
    """
    told = pace(image, [Beat(rank, workers, steps, work_s, step_s) for rank in range(workers)])
    return _steps(told, step_s, fmean(each["barrier_s"] for each in told))


def held(image: str, share: float, work_s: float = 0.005, steps: int = STEPS) -> Steps:
    """One worker without a pace that may use a share of a core: what a step used of it should take `1 / share` as long.

    Args:
        image: of nodes.
        share: of a core.
        work_s: mathematics in a step, seconds of a core.
        steps: counted.
    """
    told = pace(image, [Beat(0, 1, steps, work_s, None)], share)
    return _steps(told, told[0]["cpu_s"] / share, 0.0)


def _steps(told: Sequence[Mapping[str, Any]], declared_s: float, barrier_s: float) -> Steps:
    seconds = [step_s - barrier_s for each in told for step_s in each["steps_s"]]
    return Steps(
        workers=len(told),
        declared_s=declared_s,
        mean_s=fmean(seconds),
        p95_s=quantiles(seconds, n=20)[-1],
        barrier_s=barrier_s,
        missed=sum(each["missed"] for each in told) / len(seconds),
    )
