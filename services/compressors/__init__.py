"""Compressors: number formats for vectors on the wire.

identity    the vector unchanged
fp16        half precision

`AnyCompressor` is the registry: a scenario may name each member of this union by its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.compressors.base import (
    Aggregation,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    CompressorState,
    bytes_to_payload,
    bytes_to_vector,
    payload_to_bytes,
)
from services.compressors.fp16 import Fp16
from services.compressors.identity import IdentityCompressor

AnyCompressor: TypeAlias = Annotated[IdentityCompressor | Fp16, Field(discriminator="kind")]

__all__ = [
    "Aggregation",
    "AnyCompressor",
    "CompressedPayload",
    "Compressor",
    "CompressorSeed",
    "CompressorState",
    "Fp16",
    "IdentityCompressor",
    "bytes_to_payload",
    "bytes_to_vector",
    "payload_to_bytes",
]
