"""Amdahl's law of the training time on N workers.

Amdahl, Validity of the single processor approach to achieving large scale computing capabilities, 1967.
"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats


class AmdahlLaw(ScalingLaw):
    """Amdahl's law of the training time T on N workers: T = a/N + b.

    The parallel work is a, the serial time is b, and the serial share is b / (a + b).
    """

    kind: Literal["amdahl"] = "amdahl"
    formula: ClassVar[str] = "T = a/N + b"
    parameter_names: ClassVar[tuple[str, ...]] = ("a", "b")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    output: ClassVar[str] = "seconds"

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        a, b = (law_parameters[..., index, None] for index in range(2))
        return a / input_values["workers"] + b

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        return np.array([(series["workers"] * series["seconds"]).min(), 0.1 * series["seconds"].min()])
