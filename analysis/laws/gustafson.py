"""Gustafson, Reevaluating Amdahl's law, 1988."""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.statistics.centre import Floats


class Gustafson(Law):
    """Work grows with the workers, so speed does too: S = s + (1 - s) N with s = b / (1 + b)."""

    kind: Literal["gustafson"] = "gustafson"
    formula: ClassVar[str] = "T = a/(N + b)"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    tells: ClassVar[str] = "seconds"

    def value(self, theta: Floats, at: Columns) -> Floats:
        a, b = (theta[..., place, None] for place in range(2))
        return a / (at["workers"] + b)

    def start(self, seen: Columns) -> Floats:
        return np.array([(seen["workers"] * seen["seconds"]).max(), 0.1 * seen["workers"].min()])
