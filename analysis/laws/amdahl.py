"""Amdahl, Validity of the single processor approach to achieving large scale computing capabilities, 1967."""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.statistics.centre import Floats


class Amdahl(Law):
    """A part that workers share and a part that they do not; b / (a + b) is the serial share."""

    kind: Literal["amdahl"] = "amdahl"
    formula: ClassVar[str] = "T = a/N + b"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    tells: ClassVar[str] = "seconds"

    def value(self, theta: Floats, at: Columns) -> Floats:
        a, b = (theta[..., place, None] for place in range(2))
        return a / at["workers"] + b

    def start(self, seen: Columns) -> Floats:
        return np.array([(seen["workers"] * seen["seconds"]).min(), 0.1 * seen["seconds"].min()])
