"""Scaling law of the training time on N workers if every N has its fastest batch size.

Samples to target grow with the batch B as S = S_min (1 + B/B_noise) (McCandlish et al., An Empirical Model of
Large-Batch Training, 2018), a step takes t0 + c B/N, and T = S/B x step. The best batch is
B* = sqrt(t0 N B_noise / c), and there

    T = S_min (sqrt(c/N) + sqrt(t0/B_noise))^2

with a = S_min c and b = S_min t0/B_noise. The law has as many parameters as Amdahl's and the same two parts, a/N and b.
Its third part, 2 sqrt(ab/N), falls with the root of N, since the batch grows with the workers.
"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats


class BestBatchTrainingTimeLaw(ScalingLaw):
    """Scaling law of the training time on N workers at the best batch size.

    The law is fitted without batch sizes and sample counts.
    """

    kind: Literal["best_batch"] = "best_batch"
    formula: ClassVar[str] = "T = (sqrt(a/N) + sqrt(b))^2"
    parameter_names: ClassVar[tuple[str, ...]] = ("a", "b")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    output: ClassVar[str] = "seconds"

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        a, b = (law_parameters[..., index, None] for index in range(2))
        return (np.sqrt(a / input_values["workers"]) + np.sqrt(b)) ** 2

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        return np.array([(series["workers"] * series["seconds"]).min(), 0.01 * series["seconds"].min()])
