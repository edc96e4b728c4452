"""How long do steps take that were declared, on workers that are paced or held by a CPU quota?"""

from statistics import fmean, quantiles

from compose.engines.pacers import pace
from services.component import Record
from services.pacing_probe import Beat

STEPS = 250


class Steps(Record):
    """Steps of all workers together, against what was declared."""

    workers: int
    declared_s: float
    mean_s: float  # without the barrier's own time
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
    return _steps(image, [Beat(rank, workers, steps, work_s, step_s) for rank in range(workers)], step_s)


def held(image: str, share: float, work_s: float = 0.005, steps: int = STEPS) -> Steps:
    """One worker without a pace that may use a share of a core: its steps should take `work_s / share`."""
    return _steps(image, [Beat(0, 1, steps, work_s, None)], work_s / share, cpus=share)


def _steps(image: str, beats: list[Beat], declared_s: float, cpus: float = 1.0) -> Steps:
    told = pace(image, beats, cpus)
    barrier_s = fmean(each["barrier_s"] for each in told)
    seconds = [step_s - barrier_s for each in told for step_s in each["steps_s"]]
    return Steps(
        workers=len(beats),
        declared_s=declared_s,
        mean_s=fmean(seconds),
        p95_s=quantiles(seconds, n=20)[-1],
        barrier_s=barrier_s,
        missed=sum(each["missed"] for each in told) / len(seconds),
    )
