"""Scaling law of the step time as a function of the samples per device."""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats


class StepTimeLaw(ScalingLaw):
    """Scaling law of the step time: t0 seconds per step plus c seconds per sample.

    The constant t0 covers kernel launches, exchange and update.
    """

    kind: Literal["compute"] = "compute"
    formula: ClassVar[str] = "t = t0 + c b"
    parameter_names: ClassVar[tuple[str, ...]] = ("t0", "c")
    inputs: ClassVar[tuple[str, ...]] = ("local_batch",)
    output: ClassVar[str] = "step_seconds"

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        fixed_s, sample_s = (law_parameters[..., index, None] for index in range(2))
        return fixed_s + sample_s * input_values["local_batch"]

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        seconds = series["step_seconds"]
        return np.array([0.3 * seconds.min(), 0.7 * (seconds / series["local_batch"]).min()])
