"""Comparison of cells in real time, such as in containers, with the same cells in virtual time."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.diloco_bandwidth.published import StudyCell, grid_gbps, nearest_grid_number
from benchmarks.diloco_bandwidth.trials import MeasuredUtilisation, UtilisationTrials
from compose.engines.base import TrialEngine
from compose.engines.simulated import SimulatedEngine

SIZE_DIVISOR = 1000  # of models and bandwidths: containers send all bytes
MAX_STEP_ERROR = 0.05  # of the mean step time


@dataclass(frozen=True)
class RealTimeCell:
    """Cell at the published bandwidth in virtual and in real time."""

    cell: StudyCell
    gbps: float  # bandwidth of the grid, of the whole model
    virtual: MeasuredUtilisation
    real: MeasuredUtilisation

    @property
    def step_error(self) -> float:
        """Error of the mean step time in real time: real / virtual - 1."""
        return self.real.mean_step_s / self.virtual.mean_step_s - 1

    @property
    def meets_aim(self) -> bool:
        """Whether the mean step times differ by at most MAX_STEP_ERROR."""
        return abs(self.step_error) <= MAX_STEP_ERROR


def compare_with_virtual_time(engine: TrialEngine, cells: Iterable[StudyCell]) -> list[RealTimeCell]:
    """Run each cell at its published bandwidth on an engine and in virtual time, on smaller models and slower links.

    Raises:
        HostError: a trial failed.
        UserError: this host can't carry a trial.
    """
    simulated = SimulatedEngine()
    try:
        real_trials, virtual_trials = (UtilisationTrials(each, SIZE_DIVISOR) for each in (engine, simulated))
        rates = [(cell, grid_gbps(nearest_grid_number(cell.published_gbps))) for cell in cells]
        return [
            RealTimeCell(cell, gbps, virtual_trials.measure(cell, gbps), real_trials.measure(cell, gbps))
            for cell, gbps in rates
        ]
    finally:
        simulated.close()
