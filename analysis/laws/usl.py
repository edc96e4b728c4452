"""Gunther, A simple capacity model of massively parallel transaction systems, 1993: the universal scalability law."""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.statistics.centre import Floats


class Usl(Law):
    """Amdahl's law (contention s) and what every pair of workers costs (coherency k)."""

    kind: Literal["usl"] = "usl"
    formula: ClassVar[str] = "T = a (1 + s (N-1) + k N (N-1)) / N"
    parameters: ClassVar[tuple[str, ...]] = ("a", "s", "k")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    tells: ClassVar[str] = "seconds"

    def value(self, theta: Floats, at: Columns) -> Floats:
        a, s, k = (theta[..., place, None] for place in range(3))
        n = at["workers"]
        return a * (1 + s * (n - 1) + k * n * (n - 1)) / n

    def start(self, seen: Columns) -> Floats:
        most = seen["workers"].max()
        return np.array([(seen["workers"] * seen["seconds"]).min(), 0.1 / most, 0.01 / most**2])
