"""Measured compressors, and the goals for the rate at which they compress a vector."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.compressors import (
    Bf16,
    Compressor,
    Dgc,
    ErrorFeedback,
    Fp4,
    Fp16,
    IdentityCompressor,
    Int8,
    LargeArraysOnly,
    OneBit,
    Qsgd,
    RandomK,
    Sign,
    TernGrad,
    TopK,
)


@dataclass(frozen=True)
class CodecCase:
    """A measured compressor."""

    compressor: Compressor
    goal_mb_per_s: float | None = None  # lowest rate of compression, in MB of the vector per second


CASES: Mapping[str, CodecCase] = {
    "identity": CodecCase(IdentityCompressor()),
    "fp16": CodecCase(Fp16(), goal_mb_per_s=1500),
    "bf16": CodecCase(Bf16()),
    "fp4": CodecCase(Fp4()),
    "int8": CodecCase(Int8(), goal_mb_per_s=600),
    "int8, nearest": CodecCase(Int8(rounding="nearest")),
    "qsgd, 4 bits": CodecCase(Qsgd()),
    "terngrad": CodecCase(TernGrad()),
    "one_bit": CodecCase(OneBit(), goal_mb_per_s=600),
    "sign": CodecCase(Sign()),
    "top_k 1 %": CodecCase(TopK(ratio=0.01), goal_mb_per_s=400),
    "top_k 1 %, exact": CodecCase(TopK(ratio=0.01, selection="exact")),
    "random_k 1 %": CodecCase(RandomK(ratio=0.01)),
    "dgc 0.1 %": CodecCase(Dgc()),
    "error_feedback of top_k 1 %": CodecCase(ErrorFeedback(inner=TopK(ratio=0.01))),
    "error_feedback of one_bit": CodecCase(ErrorFeedback(inner=OneBit())),
    "large_arrays_only of top_k 1 %": CodecCase(LargeArraysOnly(inner=TopK(ratio=0.01))),  # the vector is one array
}
