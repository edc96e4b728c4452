"""Error feedback: the error of each compressed vector is added to the next vector."""

from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    CompressorState,
    SumQuality,
    UnguardedReason,
)
from services.compressors.encoding.residuals import reset_non_finite
from services.compressors.optional_contracts import ErrorFeedbackUse, describe_error_feedback
from services.compressors.without_residual import AnyCompressorWithoutResidual
from services.compressors.wrappers.base import CompressorWrapper
from services.schema.arrays import Vector, without_divergence_warnings


class ErrorFeedbackState(NamedTuple):
    """State of error feedback on one worker, for one range of the parameter vector."""

    residual: Vector | None  # what the compressor has not sent yet; None before the first vector
    inner_state: CompressorState
    reset_count: int = 0  # entries of the residual that were set to zero because they were not finite


class ErrorFeedback(CompressorWrapper):
    """Error feedback: a compressor that keeps its error and adds it to the next vector.

    For each vector g: p = g + e, the inner compressor sends p, and e ← p - D(p), where D(p) is the decompressed vector.
    The residual e starts at zero. The sum of all decompressed vectors and e is therefore the sum of all vectors g,
    apart from rounding. Payload and compression ratio are those of the inner compressor.

    A residual that isn't finite is set to zero, and its entries are counted in the state. The payload has the values
    that aren't finite, as far as the inner compressor sends them. The residual is not multiplied by the learning rate,
    so it acts with the rate of the step that sends it.

    F. Seide et al., Interspeech 2014; S. P. Karimireddy et al., "Error feedback fixes SignSGD and other gradient
    compression schemes", ICML 2019, in the variant without the learning rate.
    """

    kind: Literal["error_feedback"] = "error_feedback"
    inner: AnyCompressorWithoutResidual = Field(description="compressor whose error is fed back")

    @model_validator(mode="after")
    def _reject_growing_residual(self) -> Self:
        if self._use.growth_reason:
            raise ValueError(self._use.growth_reason)
        return self

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation of the inner compressor, but never partial sums: one residual belongs to one whole vector."""
        inner = self.inner.aggregation
        return "all_gather" if inner == "partial_sums" else inner

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def keeps_residual(self) -> bool:
        return True

    @property
    def sum_quality(self) -> SumQuality:
        return "unguarded" if self._use.unguarded_reason else "lossy"

    def explain_unguarded_sums(self) -> UnguardedReason:
        return self._use.unguarded_reason or super().explain_unguarded_sums()

    def init_state(self, entry_count: int, seed: CompressorSeed) -> ErrorFeedbackState:
        return ErrorFeedbackState(None, self._adapted_inner.init_state(entry_count, seed))

    def compress(self, vector: Vector, state: ErrorFeedbackState) -> tuple[CompressedPayload, ErrorFeedbackState]:
        inner = self._adapted_inner
        with without_divergence_warnings():
            corrected = vector if state.residual is None else vector + state.residual
            payload, inner_state = inner.compress(corrected, state.inner_state)
            residual = corrected - inner.decompress(payload)
        return payload, ErrorFeedbackState(residual, inner_state, state.reset_count + reset_non_finite(residual))

    def decompress(self, payload: CompressedPayload) -> Vector:
        return self._adapted_inner.decompress(payload)

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return self._adapted_inner.payload_dtypes_and_sizes(entry_count, dtype)

    @property
    def _adapted_inner(self) -> Compressor:
        return self._use.compressor

    @property
    def _use(self) -> ErrorFeedbackUse:
        return describe_error_feedback(self.inner)
