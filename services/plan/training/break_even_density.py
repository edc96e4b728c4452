"""Density up to which a sparse compressor shortens a step: the share of the entries of a vector that are sent."""

from collections.abc import Callable
from math import sqrt

from services.compressors import Compressor, IdentityCompressor, find_density, with_density
from services.strategies import SinglePhaseStrategy
from services.strategies.cost_model import CostModel

RELATIVE_ACCURACY = 0.002  # of the density, which is shown with three digits


def find_break_even_density(strategy: SinglePhaseStrategy, cost_model: CostModel) -> float | None:
    """Return the density up to which the predicted step is shorter than without compression, from 0 to 1.

    The result is 0 if no density shortens the step, and 1 if every density does. The step without compression is that
    of the same strategy, by the closed forms for the links of the cost model. The time to compress is not part of it.

    Return None for a strategy without a sparse compressor, for a vector of one entry, and if links are so fast that the
    exchange of the uncompressed vector takes no time.
    """
    compressor = strategy.describe_worker_exchange().compressor
    if not isinstance(compressor, Compressor) or find_density(compressor) is None or cost_model.entries == 1:
        return None
    dense = strategy.model_copy(update={"compress": IdentityCompressor()}).predict_step_time(cost_model)
    if not dense.exchange_s:
        return None

    def shortens_step(density: float) -> bool:
        compress = with_density(compressor, density)
        sparse = strategy.model_copy(update={"compress": compress}).predict_step_time(cost_model)
        return sparse.step_s < dense.step_s

    lowest = 1 / cost_model.entries
    if not shortens_step(lowest):
        return 0.0
    return 1.0 if shortens_step(1.0) else _bisect(shortens_step, lowest)


def _bisect(holds_for: Callable[[float], bool], lowest: float) -> float:
    """Return the largest density for which a condition holds that holds for `lowest`, and not for 1."""
    low, high = lowest, 1.0
    while high > low * (1 + RELATIVE_ACCURACY):
        middle = sqrt(low * high)
        low, high = (middle, high) if holds_for(middle) else (low, middle)
    return low
