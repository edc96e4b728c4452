"""Compressors: number formats for vectors on the wire.

identity            the vector unchanged
floating_point/     floating-point numbers with fewer bits: fp16, bf16, fp4
quantisation/       few levels per entry, with scales: int8, qsgd, terngrad, one_bit, sign
sparsification/     few entries of each vector: top_k, random_k, dgc
wrappers/           with another compressor inside: error_feedback, large_arrays_only
unselectable/       used by other compressors and by sums of vectors, not by scenarios
encoding/           steps that several compressors share
base                contract of all compressors
optional_contracts  contracts of compressors with a special property
without_residual    registry of the compressors that error feedback may wrap
wire_bytes          payloads as bytes, and back

`AnyCompressor` is the registry: a scenario may name each member of this union by its `kind`.
"""

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    CompressorState,
    SumQuality,
    VectorCompression,
)
from services.compressors.floating_point.bf16 import Bf16
from services.compressors.floating_point.fp4 import Fp4
from services.compressors.floating_point.fp16 import Fp16
from services.compressors.identity import IdentityCompressor
from services.compressors.optional_contracts import (
    ArrayShape,
    FormatStage,
    ModelDependentCompression,
    after_format_stages,
    applies_momentum,
    find_density,
    fit_to_model,
    fit_to_range,
    list_format_stages,
    with_density,
)
from services.compressors.quantisation.int8 import Int8
from services.compressors.quantisation.one_bit import OneBit
from services.compressors.quantisation.qsgd import Qsgd
from services.compressors.quantisation.sign import Sign
from services.compressors.quantisation.terngrad import TernGrad
from services.compressors.sparsification.dgc import Dgc
from services.compressors.sparsification.random_k import RandomK
from services.compressors.sparsification.top_k import TopK
from services.compressors.wire_bytes import bytes_to_payload, bytes_to_vector, payload_to_bytes, split_wire_bytes
from services.compressors.without_residual import CompressorWithoutResidual
from services.compressors.wrappers.error_feedback import ErrorFeedback
from services.compressors.wrappers.large_arrays_only import LargeArraysOnly


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
    "ArrayFormat",
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
    "ModelDependentCompression",
    "OneBit",
    "Qsgd",
    "RandomK",
    "Sign",
    "SumQuality",
    "TernGrad",
    "TopK",
    "VectorCompression",
    "after_format_stages",
    "applies_momentum",
    "bytes_to_payload",
    "bytes_to_vector",
    "find_density",
    "fit_to_model",
    "fit_to_range",
    "list_format_stages",
    "payload_to_bytes",
    "split_wire_bytes",
    "with_density",
]
