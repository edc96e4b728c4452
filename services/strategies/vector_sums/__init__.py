"""Sums of one vector per worker: one way for each kind of aggregation of a compressor.

`choose_vector_sum` returns the way that suits a compressor. `AnyGradientCompression` is the registry of what
all-reduce accepts: the compressors and `power_sgd`. `prediction` predicts the time of a step that ends with a
sum.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.collectives import Collective
from services.collectives.all_gather import AllGather
from services.compressors import Compressor, CompressorUnion, IdentityCompressor, Int8
from services.schema.errors import ProtocolError
from services.strategies.vector_sums.added_payloads import AddedPayloads
from services.strategies.vector_sums.base import Summand, VectorSum
from services.strategies.vector_sums.gathered_payloads import GatheredPayloads
from services.strategies.vector_sums.low_rank_sum import LowRankSum
from services.strategies.vector_sums.partial_sums import PartialSums
from services.strategies.vector_sums.power_sgd import PowerSgd
from services.strategies.vector_sums.shared_scale_sum import SharedScaleSum

AnyGradientCompression: TypeAlias = Annotated[CompressorUnion | PowerSgd, Field(discriminator="kind")]

__all__ = ["AnyGradientCompression", "PowerSgd", "Summand", "VectorSum", "choose_vector_sum"]


def choose_vector_sum(collective: Collective, gather: AllGather, compressor: Compressor | PowerSgd) -> VectorSum:
    """Return the way in which workers sum vectors with a compressor, or as products of factors.

    Args:
        collective: algorithm that adds vectors, or payloads that can be added.
        gather: all-gather of payloads that cannot be added.
        compressor: number format on the wire, or PowerSGD.
    """
    if isinstance(compressor, PowerSgd):
        return LowRankSum(IdentityCompressor(), collective, compressor)
    if isinstance(compressor, Int8) and compressor.aggregation == "shared_scale":
        return SharedScaleSum(compressor, collective, compressor)
    match compressor.aggregation:
        case "partial_sums":
            return PartialSums(compressor, collective)
        case "payloads":
            return AddedPayloads(compressor, collective)
        case "all_gather":
            return GatheredPayloads(compressor, gather)
        case "low_rank":
            raise ProtocolError(f"{compressor.kind} is a number format, so it has no factors of matrices to sum")
        case "shared_scale":
            raise ProtocolError(f"{compressor.kind} has no levels that can be added")
