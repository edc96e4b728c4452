"""Signs of a vector, with one scale for the whole vector."""

from typing import Literal

from pydantic import Field

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    UnguardedReason,
)
from services.compressors.encoding.bit_packing import count_packed_bytes
from services.compressors.encoding.blocks import count_buckets, list_bucket_blocks
from services.compressors.encoding.signs import decode_signs
from services.compressors.optional_contracts import ErrorFeedbackInner, ErrorFeedbackUse
from services.schema.arrays import Vector, array_namespace, without_divergence_warnings

ROW_ENTRIES = 1024  # of one sum of magnitudes


class Sign(Compressor, ErrorFeedbackInner):
    """Sign of each entry: one bit per entry and four bytes per vector, a ratio of almost 32 for fp32 vectors.

    Zero counts as positive. With `scale: none` entries decompress to 1 and -1, so the learning rate must be small. With
    `scale: l1` they decompress to plus and minus the mean magnitude m of the vector; the squared error is then
    ‖v‖² - n·m² for n entries. Training with `scale: l1` needs error feedback. With `scale: none`, error feedback does
    not limit the error: an entry of the residual grows as long as the magnitudes of its gradients are above 1. A vector
    with a value that isn't finite decompresses to NaN.

    `none`: J. Bernstein et al., "signSGD: Compressed optimisation for non-convex problems", ICML 2018. `l1`: S. P.
    Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019. Difference
    from the papers: one vector (with servers, one shard) has one scale, instead of each layer.
    """

    kind: Literal["sign"] = "sign"
    scale: Literal["none", "l1"] = Field(
        default="l1", description="magnitude of decompressed entries: none: 1; l1: mean magnitude of the vector"
    )

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    def explain_unguarded_sums(self) -> UnguardedReason:
        if self.scale == "none":
            return UnguardedReason(
                "sign with scale: none sends no magnitudes", "write scale: l1 and wrap sign in error_feedback"
            )
        return UnguardedReason("the errors of sign do not have a mean of zero", "wrap sign in error_feedback")

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        xp = array_namespace(vector)
        packed = xp.empty(count_packed_bytes(vector.size), "uint8")
        magnitudes = xp.empty(count_buckets(vector.size, ROW_ENTRIES), "float32")  # sums of rows
        with without_divergence_warnings():
            for block in list_bucket_blocks(vector, ROW_ENTRIES):
                rows = block.rows_of(vector)
                packed[block.packed_bytes] = xp.packbits(rows < 0)
                magnitudes[block.buckets] = abs(rows).sum(axis=1)
            mean = magnitudes.sum(dtype="float64").reshape(1) / vector.size
            zero_or_nan = mean * 0  # NaN if a value isn't finite
            scale = zero_or_nan + (mean if self.scale == "l1" else 1)
        return CompressedPayload((scale.astype("float32"), packed), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        scale, packed = payload.arrays
        scales = scale.repeat(count_buckets(payload.entries, ROW_ENTRIES))
        return decode_signs(packed, payload.entries, ROW_ENTRIES, -scales, scales)

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - always one bit
        return (("float32", 1), ("uint8", count_packed_bytes(entry_count)))

    def describe_error_feedback(self) -> ErrorFeedbackUse:
        if self.scale == "l1":
            return ErrorFeedbackUse(self)
        why = "with scale: none, residuals of sign grow without limit where magnitudes of gradients stay above 1"
        return ErrorFeedbackUse(self, unguarded_reason=UnguardedReason(why, "write scale: l1"))
