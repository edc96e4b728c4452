"""Sums of one vector per worker: one way for each kind of aggregation of a compressor.

`choose_vector_sum` returns the way that suits a compressor. `prediction` predicts the time of a step that ends with a
sum.
"""

from services.collectives import Collective
from services.collectives.all_gather import AllGather
from services.compressors import Compressor
from services.strategies.vector_sums.added_payloads import AddedPayloads
from services.strategies.vector_sums.base import Summand, VectorSum
from services.strategies.vector_sums.gathered_payloads import GatheredPayloads
from services.strategies.vector_sums.partial_sums import PartialSums

__all__ = ["Summand", "VectorSum", "choose_vector_sum"]


def choose_vector_sum(collective: Collective, gather: AllGather, compressor: Compressor) -> VectorSum:
    """Return the way in which workers sum vectors with a compressor.

    Args:
        collective: algorithm that adds vectors, or payloads that can be added.
        gather: all-gather of payloads that cannot be added.
        compressor: number format on the wire.
    """
    match compressor.aggregation:
        case "partial_sums":
            return PartialSums(compressor, collective)
        case "payloads":
            return AddedPayloads(compressor, collective)
        case "all_gather":
            return GatheredPayloads(compressor, gather)
