"""Amdahl's law plus a term that grows with the logarithm of the number of workers.

The term describes tree-shaped communication such as all-reduce.
"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats


class LogarithmicLaw(ScalingLaw):
    """Amdahl's law with a serial time that grows with the logarithm of the number of workers.

    On N workers, the serial time is b + c ln N.
    """

    kind: Literal["log_n"] = "log_n"
    formula: ClassVar[str] = "T = a/N + b + c ln N"
    parameter_names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    output: ClassVar[str] = "seconds"

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        a, b, c = (law_parameters[..., index, None] for index in range(3))
        return a / input_values["workers"] + b + c * np.log(input_values["workers"])

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        min_seconds = series["seconds"].min()
        return np.array([(series["workers"] * series["seconds"]).min(), 0.1 * min_seconds, 0.03 * min_seconds])
