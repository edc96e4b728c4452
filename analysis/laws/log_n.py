"""Amdahl's law with rounds of a tree: what is often fit to all-reduce."""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.statistics.centre import Floats


class LogN(Law):
    """The part that workers do not share grows by c with each e times as many of them."""

    kind: Literal["log_n"] = "log_n"
    formula: ClassVar[str] = "T = a/N + b + c ln N"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    inputs: ClassVar[tuple[str, ...]] = ("workers",)
    tells: ClassVar[str] = "seconds"

    def value(self, theta: Floats, at: Columns) -> Floats:
        a, b, c = (theta[..., place, None] for place in range(3))
        return a / at["workers"] + b + c * np.log(at["workers"])

    def start(self, seen: Columns) -> Floats:
        least = seen["seconds"].min()
        return np.array([(seen["workers"] * seen["seconds"]).min(), 0.1 * least, 0.03 * least])
