"""How long does a device compute on its share of the batch?"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.statistics.centre import Floats


class Compute(Law):
    """What every step costs whatever its size (kernel launches, exchange, update), and each sample of a device."""

    kind: Literal["compute"] = "compute"
    formula: ClassVar[str] = "t = t0 + c b"
    parameters: ClassVar[tuple[str, ...]] = ("t0", "c")
    inputs: ClassVar[tuple[str, ...]] = ("local_batch",)
    tells: ClassVar[str] = "step_seconds"

    def value(self, theta: Floats, at: Columns) -> Floats:
        fixed, each = (theta[..., place, None] for place in range(2))
        return fixed + each * at["local_batch"]

    def start(self, seen: Columns) -> Floats:
        return np.array([0.3 * seen["step_seconds"].min(), 0.7 * (seen["step_seconds"] / seen["local_batch"]).min()])
