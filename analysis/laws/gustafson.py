"""Gustafson's law of the training time on N workers.

Source: Gustafson, Reevaluating Amdahl's law, 1988.
"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats


class GustafsonLaw(ScalingLaw):
    """Gustafson's law for work that grows with the number of workers N.

    The speedup is S = s + (1 - s) N, where s is the serial share.
    """

    kind: Literal["gustafson"] = "gustafson"
    formula: ClassVar[str] = "T = a/(N + b)"
    parameter_names: ClassVar[tuple[str, ...]] = ("a", "b")  # serial share s = b / (1 + b)
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    output: ClassVar[str] = "seconds"

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        a, b = (law_parameters[..., index, None] for index in range(2))
        return a / (input_values["workers"] + b)

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        return np.array([(series["workers"] * series["seconds"]).max(), 0.1 * series["workers"].min()])
