"""Universal scalability law of the training time on N workers.

Gunther, A simple capacity model of massively parallel transaction systems, 1993.
"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats


class UniversalScalabilityLaw(ScalingLaw):
    """Universal scalability law: Amdahl's law plus a cost for each pair of workers.

    The contention is s, and the cost per pair (coherency) is k.
    """

    kind: Literal["usl"] = "usl"
    formula: ClassVar[str] = "T = a (1 + s (N-1) + k N (N-1)) / N"
    parameter_names: ClassVar[tuple[str, ...]] = ("a", "s", "k")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    output: ClassVar[str] = "seconds"

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        a, s, k = (law_parameters[..., index, None] for index in range(3))
        n = input_values["workers"]
        return a * (1 + s * (n - 1) + k * n * (n - 1)) / n

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        max_workers = series["workers"].max()
        return np.array([(series["workers"] * series["seconds"]).min(), 0.1 / max_workers, 0.01 / max_workers**2])
