"""Base class of compressors that contain another compressor."""

from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from services.compressors.base import Aggregation, Compressor, SumQuality, UnguardedReason


class CompressorWrapper(Compressor):
    """Compressor with another compressor in its key `inner`.

    It has the properties of the inner compressor, except where a subclass differs.
    """

    if TYPE_CHECKING:  # each subclass declares the key, with the compressors that it accepts
        inner: Compressor

    @model_validator(mode="after")
    def _reject_shared_scale(self) -> Self:
        if self.inner.aggregation == "shared_scale":
            why = f"{self.inner.kind} with scale: shared is not supported inside {self.kind}"
            raise ValueError(f"{why}; write scale: local, or use it without {self.kind}")
        return self

    def with_inner(self, inner: Compressor) -> Self:
        """Return a copy with another inner compressor."""
        return self.model_copy(update={"inner": inner})

    @property
    def aggregation(self) -> Aggregation:
        return self.inner.aggregation

    @property
    def keeps_state(self) -> bool:
        return self.inner.keeps_state

    @property
    def keeps_residual(self) -> bool:
        return self.inner.keeps_residual

    @property
    def sum_quality(self) -> SumQuality:
        return self.inner.sum_quality

    def explain_unguarded_sums(self) -> UnguardedReason:
        return self.inner.explain_unguarded_sums()
