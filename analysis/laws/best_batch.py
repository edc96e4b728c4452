"""How long does training take on N workers when the batch is always the best one?

Samples to target grow with the batch B as S = S_min (1 + B/B_noise) (McCandlish et al., An Empirical Model of
Large-Batch Training, 2018), a step takes t0 + c B/N, and T = S/B x step. The best batch is
B* = sqrt(t0 N B_noise / c), and there

    T = S_min (sqrt(c/N) + sqrt(t0/B_noise))^2

with a = S_min c and b = S_min t0/B_noise: as many parameters as Amdahl's law, whose serial part it shares, but between
both ends lies a third part, 2 sqrt(ab/N), that falls with the root of N: who adds workers also grows the batch.
"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.statistics.centre import Floats


class BestBatch(Law):
    """Needs times alone; neither batch nor samples are asked for."""

    kind: Literal["best_batch"] = "best_batch"
    formula: ClassVar[str] = "T = (sqrt(a/N) + sqrt(b))^2"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    tells: ClassVar[str] = "seconds"

    def value(self, theta: Floats, at: Columns) -> Floats:
        a, b = (theta[..., place, None] for place in range(2))
        return (np.sqrt(a / at["workers"]) + np.sqrt(b)) ** 2

    def start(self, seen: Columns) -> Floats:
        return np.array([(seen["workers"] * seen["seconds"]).min(), 0.01 * seen["seconds"].min()])
