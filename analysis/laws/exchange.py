"""The α-β model of an exchange (R. W. Hockney, Parallel Computing 20, 1994), both terms counted by closed forms."""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.statistics.centre import Floats


class Exchange(Law):
    """What each message of the longest chain costs, and how much longer bytes take than the declared links say."""

    kind: Literal["exchange"] = "exchange"
    formula: ClassVar[str] = "t = alpha m + stretch w"
    parameters: ClassVar[tuple[str, ...]] = ("alpha", "stretch")
    inputs: ClassVar[tuple[str, ...]] = ("link_seconds", "messages")
    tells: ClassVar[str] = "exchange_seconds"

    def value(self, theta: Floats, at: Columns) -> Floats:
        alpha, stretch = (theta[..., place, None] for place in range(2))
        return alpha * at["messages"] + stretch * at["link_seconds"]

    def start(self, seen: Columns) -> Floats:
        stretch = (seen["exchange_seconds"] / seen["link_seconds"]).min()
        return np.array([0.1 * (seen["exchange_seconds"] / seen["messages"]).min(), 0.9 * stretch])
