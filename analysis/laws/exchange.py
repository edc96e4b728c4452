"""α-β model of the time that workers take to exchange gradients.

Source: R. W. Hockney, Parallel Computing 20, 1994.

Closed forms count both terms: the messages of the longest chain, and the seconds that bytes take on the declared links.
"""

from typing import ClassVar, Literal

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats


class ExchangeTimeLaw(ScalingLaw):
    """Scaling law of the time that workers take to exchange gradients.

    The time is alpha seconds for each of m messages, plus the link time w times `stretch`.
    """

    kind: Literal["exchange"] = "exchange"
    formula: ClassVar[str] = "t = alpha m + stretch w"
    parameter_names: ClassVar[tuple[str, ...]] = ("alpha", "stretch")
    inputs: ClassVar[tuple[str, ...]] = ("link_seconds", "messages")
    output: ClassVar[str] = "exchange_seconds"

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        alpha, stretch = (law_parameters[..., index, None] for index in range(2))
        return alpha * input_values["messages"] + stretch * input_values["link_seconds"]

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        stretch = (series["exchange_seconds"] / series["link_seconds"]).min()
        return np.array([0.1 * (series["exchange_seconds"] / series["messages"]).min(), 0.9 * stretch])
