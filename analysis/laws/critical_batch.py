"""Scaling law of the number of samples to the training target, by batch size.

McCandlish, Kaplan, Amodei et al., An Empirical Model of Large-Batch Training, 2018 (arXiv:1812.06162).
"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats


class CriticalBatchLaw(ScalingLaw):
    """Scaling law of the samples that a model needs to the training target, by batch size.

    With batch size B, the number of samples is S_min (1 + B/B_noise). S_min is the number for very small batches. With
    batch size B_noise, twice as many samples are needed.
    """

    kind: Literal["critical_batch"] = "critical_batch"
    formula: ClassVar[str] = "S = S_min (1 + B/B_noise)"
    parameter_names: ClassVar[tuple[str, ...]] = ("S_min", "B_noise")
    inputs: ClassVar[tuple[str, ...]] = ("batch",)
    output: ClassVar[str] = "samples"

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        min_samples, noise_batch = (law_parameters[..., index, None] for index in range(2))
        return min_samples * (1 + input_values["batch"] / noise_batch)

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        return np.array([series["samples"].min(), 2 * series["batch"].max()])
