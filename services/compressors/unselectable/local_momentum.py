"""Momentum on each worker, without compression: for entries that deep gradient compression must not compress."""

from math import sqrt
from typing import Literal

from services.compressors.base import Aggregation, ArrayFormat, CompressedPayload, Compressor, CompressorSeed
from services.compressors.encoding.residuals import reset_non_finite
from services.schema.arrays import Vector, array_namespace, euclidean_norm, without_divergence_warnings


class LocalMomentum(Compressor):
    """Momentum on each worker: u ← m·u + g for each gradient g, and u is sent unchanged.

    The sum of all workers is that of an optimiser with momentum. Values of u that aren't finite are sent, and then set
    to zero. A scenario cannot select this compressor by itself: there, momentum belongs to the optimiser.
    """

    kind: Literal["local_momentum"] = "local_momentum"
    momentum: float
    clip_norm: float | None = None
    workers: int | None = None

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    def init_state(self, entry_count: int, seed: CompressorSeed) -> tuple[Vector | None]:  # noqa: ARG002 - the same for any length
        return (None,)

    def compress(self, vector: Vector, state: tuple[Vector | None]) -> tuple[CompressedPayload, tuple[Vector]]:
        (velocity,) = state
        with without_divergence_warnings():
            gradient = clip_to_norm(vector, self.clip_norm, self.workers)
            sent = gradient.copy() if velocity is None else self.momentum * velocity + gradient
        kept = sent.copy()
        reset_non_finite(kept)
        return CompressedPayload((sent,), vector.size), (kept,)

    def decompress(self, payload: CompressedPayload) -> Vector:
        (vector,) = payload.arrays
        return vector

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return ((dtype, entry_count),)


def clip_to_norm(gradient: Vector, clip_norm: float | None, workers: int | None) -> Vector:
    """Return the gradient with its norm limited to clip_norm/√workers; unchanged without `clip_norm`."""
    if clip_norm is None:
        return gradient
    limit = clip_norm / sqrt(workers or 1)
    xp = array_namespace(gradient)
    return gradient * (limit / xp.maximum(euclidean_norm(gradient), limit)).astype(gradient.dtype)
