"""McCandlish, Kaplan, Amodei et al., An Empirical Model of Large-Batch Training, 2018 (arXiv:1812.06162)."""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.statistics.centre import Floats


class CriticalBatch(Law):
    """Samples to target: at the batch B_noise a target takes twice the samples that the smallest batches need."""

    kind: Literal["critical_batch"] = "critical_batch"
    formula: ClassVar[str] = "S = S_min (1 + B/B_noise)"
    parameters: ClassVar[tuple[str, ...]] = ("S_min", "B_noise")
    inputs: ClassVar[tuple[str, ...]] = ("batch",)
    tells: ClassVar[str] = "samples"

    def value(self, theta: Floats, at: Columns) -> Floats:
        least, noise = (theta[..., place, None] for place in range(2))
        return least * (1 + at["batch"] / noise)

    def start(self, seen: Columns) -> Floats:
        return np.array([seen["samples"].min(), 2 * seen["batch"].max()])
