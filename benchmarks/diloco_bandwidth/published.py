"""Published bandwidths for a compute utilisation of 95 %, and the facts from which they were simulated.

A. Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a distributed free lunch",
arXiv:2501.18512, 2025, table 4.
"""

from collections.abc import Mapping
from math import log10
from typing import NamedTuple

AIMED_UTILISATION = 0.95
WORKERS = 2
PERIOD_STEPS = 100  # H of all variants of DiLoCo
# The published values lie on a grid of 50 rates from 0.1 to 1,000 Gbit/s with equal ratios of 1.21.
GRID_SIZE, LOWEST_GBPS, HIGHEST_GBPS = 50, 0.1, 1000.0
GRID_RATIO: float = (HIGHEST_GBPS / LOWEST_GBPS) ** (1 / (GRID_SIZE - 1))


class StudyModel(NamedTuple):
    """Model of the study: its size, and the compute time of its steps."""

    name: str
    parameters: int
    layers: int
    step_s: float  # compute of a step
    fragments: int  # of streaming DiLoCo; three layers each


class StudyCell(NamedTuple):
    """Cell of the published table: a model, and a method with which its workers exchange vectors."""

    method: str
    model: StudyModel

    @property
    def name(self) -> str:
        """Name of the cell as an argument of the benchmark, such as "diloco:10B"."""
        return f"{self.method}:{self.model.name}"

    @property
    def published_gbps(self) -> float:
        """Published bandwidth for the aimed utilisation, in Gbit/s."""
        return PUBLISHED_GBPS[self.method][self.model.name]


MODELS = (
    StudyModel("1B", 1_000_000_000, layers=24, step_s=0.1, fragments=8),
    StudyModel("10B", 10_000_000_000, layers=48, step_s=0.8, fragments=16),
    StudyModel("100B", 100_000_000_000, layers=108, step_s=4.9, fragments=36),
)
PUBLISHED_GBPS: Mapping[str, Mapping[str, float]] = {  # method -> model -> Gbit/s
    "data_parallel": {"1B": 222, "10B": 268, "100B": 391},
    "diloco": {"1B": 23, "10B": 34, "100B": 49},
    "streaming": {"1B": 16, "10B": 13, "100B": 11},
    "streaming_overlap_4bit": {"1B": 2.0, "10B": 1.4, "100B": 1.1},
}
CELLS = tuple(StudyCell(method, model) for method in PUBLISHED_GBPS for model in MODELS)


def grid_gbps(number: int) -> float:
    """Return a rate of the grid in Gbit/s, given its number from 0 to 49."""
    return float(LOWEST_GBPS * GRID_RATIO**number)


def nearest_grid_number(gbps: float) -> int:
    """Return the number of the rate of the grid that is nearest to a rate in Gbit/s, by ratio."""
    return round(log10(gbps / LOWEST_GBPS) / log10(GRID_RATIO))
