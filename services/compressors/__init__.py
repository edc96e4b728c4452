"""Compressors: number formats for vectors on the wire.

identity         the vector unchanged
fp16, bf16       16-bit floating-point numbers
fp4              4-bit floating-point numbers with a scale per bucket
int8             8-bit whole numbers with a scale per bucket
qsgd, terngrad   few levels per bucket, unbiased
one_bit, sign    one bit per entry
top_k, random_k  few entries
dgc              few entries of accumulated velocities
error_feedback   another compressor, whose error is added to the next vector
large_arrays_only  another compressor, for the large arrays of the model only

`encoding` has the steps that several compressors share. `AnyCompressor` is the registry: a scenario may name each
member of this union by its `kind`. `without_residual` lists the members that error feedback may wrap.
`local_momentum` and `int16_levels` are no members: other compressors and sums use them.
"""

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from services.compressors.base import (
    Aggregation,
    ArrayShape,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    CompressorState,
    FormatStage,
    SumQuality,
    VectorCompression,
    bytes_to_payload,
    bytes_to_vector,
    payload_to_bytes,
    split_wire_bytes,
)
from services.compressors.bf16 import Bf16
from services.compressors.dgc import Dgc
from services.compressors.error_feedback import ErrorFeedback
from services.compressors.fp4 import Fp4
from services.compressors.fp16 import Fp16
from services.compressors.identity import IdentityCompressor
from services.compressors.int8 import Int8
from services.compressors.large_arrays_only import LargeArraysOnly
from services.compressors.one_bit import OneBit
from services.compressors.qsgd import Qsgd
from services.compressors.random_k import RandomK
from services.compressors.sign import Sign
from services.compressors.terngrad import TernGrad
from services.compressors.top_k import TopK
from services.compressors.without_residual import CompressorWithoutResidual


def _reject_power_sgd(declared: Any) -> Any:
    """Reject the compression that only all-reduce accepts, since it is not a number format.

    Raises:
        ValueError: `declared`, a section of a scenario or a component, is `power_sgd`.
    """
    kind = declared.get("kind") if isinstance(declared, dict) else getattr(declared, "kind", None)
    if kind == "power_sgd":
        raise ValueError(
            "power_sgd sums the gradients of all workers in two all-reduces, so it is not a format of single vectors; "
            "use it in strategy all_reduce, or use another compressor, such as top_k"
        )
    return declared


CompressorUnion: TypeAlias = CompressorWithoutResidual | Dgc | ErrorFeedback | LargeArraysOnly
AnyCompressor: TypeAlias = Annotated[
    Annotated[CompressorUnion, Field(discriminator="kind")], BeforeValidator(_reject_power_sgd)
]

__all__ = [
    "Aggregation",
    "AnyCompressor",
    "ArrayShape",
    "Bf16",
    "CompressedPayload",
    "Compressor",
    "CompressorSeed",
    "CompressorState",
    "CompressorUnion",
    "Dgc",
    "ErrorFeedback",
    "FormatStage",
    "Fp4",
    "Fp16",
    "IdentityCompressor",
    "Int8",
    "LargeArraysOnly",
    "OneBit",
    "Qsgd",
    "RandomK",
    "Sign",
    "SumQuality",
    "TernGrad",
    "TopK",
    "VectorCompression",
    "bytes_to_payload",
    "bytes_to_vector",
    "payload_to_bytes",
    "split_wire_bytes",
]
