"""Search for the lowest bandwidth of the grid at which a cell reaches the aimed compute utilisation."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.diloco_bandwidth.published import (
    AIMED_UTILISATION,
    GRID_SIZE,
    StudyCell,
    grid_gbps,
    nearest_grid_number,
)
from benchmarks.diloco_bandwidth.trials import MeasuredUtilisation, UtilisationTrials
from services.schema.errors import HostError

MAX_ERROR_STEPS = 1  # of the grid: the authors' simulator and this one may round to neighbouring rates


@dataclass(frozen=True)
class FoundBandwidth:
    """Lowest bandwidth of the grid at which a cell reaches the aimed utilisation, beside the published one."""

    cell: StudyCell
    gbps: float
    error_steps: int  # steps of the grid by which it is above the published bandwidth; negative: below
    utilisation: MeasuredUtilisation  # at this bandwidth
    utilisation_at_published: MeasuredUtilisation  # at the rate of the grid that was published

    @property
    def meets_aim(self) -> bool:
        """Whether the bandwidth is the published one, or a neighbour of it on the grid."""
        return abs(self.error_steps) <= MAX_ERROR_STEPS


def find_bandwidths(trials: UtilisationTrials, cells: Iterable[StudyCell]) -> list[FoundBandwidth]:
    """Return the lowest bandwidth of the grid for the aimed utilisation, for each cell.

    Raises:
        HostError: a trial failed, or no bandwidth of the grid is enough.
    """
    return [_find_bandwidth(trials, cell) for cell in cells]


def _find_bandwidth(trials: UtilisationTrials, cell: StudyCell) -> FoundBandwidth:
    """Return the bandwidth of one cell.

    The utilisation grows with the bandwidth, so the result does not depend on the rate at which the search starts.
    """
    published_number = number = nearest_grid_number(cell.published_gbps)
    while not _reaches_aim(trials, cell, number):
        number += 1
        if number == GRID_SIZE:
            raise HostError(f"{cell.name} does not reach {AIMED_UTILISATION:.0%} at {grid_gbps(number - 1):g} Gbit/s")
    while number and _reaches_aim(trials, cell, number - 1):
        number -= 1
    return FoundBandwidth(
        cell=cell,
        gbps=grid_gbps(number),
        error_steps=number - published_number,
        utilisation=trials.measure(cell, grid_gbps(number)),
        utilisation_at_published=trials.measure(cell, grid_gbps(published_number)),
    )


def _reaches_aim(trials: UtilisationTrials, cell: StudyCell, number: int) -> bool:
    return trials.measure(cell, grid_gbps(number)).share >= AIMED_UTILISATION
