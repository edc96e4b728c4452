"""Random-k: entries at random positions that all workers share."""

from typing import Literal, Self

import numpy as np
from pydantic import Field

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    UnguardedReason,
)
from services.compressors.encoding.largest_entries import count_kept_entries
from services.compressors.encoding.randomness import VectorRandomness
from services.compressors.optional_contracts import ErrorFeedbackInner, ErrorFeedbackUse, SparseCompressor
from services.schema.arrays import HostArray, Vector, array_namespace


class RandomK(Compressor, SparseCompressor, ErrorFeedbackInner):
    """Random-k: k = max(1, ratio·n) of n entries, k rounded to a whole number, at random positions.

    All other entries become 0. The positions follow from a seed of 64 bits, which the payload contains. It is a
    function of the trial's seed and of the number of the vector, so all workers send the same positions of their
    vectors with the same number, and values can be added without the positions. A payload has k values and eight bytes.

    With `unbiased`, values are multiplied by n/k: the mean of the decompressed vector is the vector, and the squared
    error has the mean (n/k - 1)·‖v‖². Error feedback switches the factor off (`unbiased: false`), because it needs a
    compressor whose error is smaller than the vector. Without the factor, the squared error has the mean
    (1 - k/n)·‖v‖². NaN and infinity are sent only at the chosen positions.

    S. U. Stich, J.-B. Cordonnier and M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """

    kind: Literal["random_k"] = "random_k"
    ratio: float = Field(default=0.01, gt=0, le=1, description="share of the entries that are sent")
    unbiased: bool = Field(
        default=True,
        description="whether values are multiplied by 1/ratio, so that the mean of the result is the vector",
    )

    @property
    def aggregation(self) -> Aggregation:
        return "payloads"

    def explain_unguarded_sums(self) -> UnguardedReason:
        if not self.unbiased:
            return super().explain_unguarded_sums()
        return UnguardedReason("the error of random_k can be larger than the vector", "wrap random_k in error_feedback")

    def init_state(self, entry_count: int, seed: CompressorSeed) -> VectorRandomness:  # noqa: ARG002 - the same for any length
        return VectorRandomness(seed)

    def compress(self, vector: Vector, state: VectorRandomness) -> tuple[CompressedPayload, VectorRandomness]:
        count, seed = count_kept_entries(self.ratio, vector.size), state.create_shared_seed()
        xp = array_namespace(vector)
        values = vector[xp.asarray(_draw_positions(seed, vector.size, count))]
        if self.unbiased:
            values *= vector.size / count
        return CompressedPayload((xp.asarray(np.array([seed], "uint64")), values), vector.size), state.advance()

    def decompress(self, payload: CompressedPayload) -> Vector:
        seed, values = payload.arrays
        xp = array_namespace(values)
        vector = xp.zeros(payload.entries, values.dtype)
        vector[xp.asarray(_draw_positions(int(seed[0]), payload.entries, values.size))] = values
        return vector

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return (("uint64", 1), (dtype, count_kept_entries(self.ratio, entry_count)))

    @property
    def density(self) -> float:
        return self.ratio

    def with_density(self, density: float) -> Self:
        return self.model_copy(update={"ratio": density})

    def describe_error_feedback(self) -> ErrorFeedbackUse:
        return ErrorFeedbackUse(self.model_copy(update={"unbiased": False}))


def _draw_positions(seed: int, entry_count: int, count: int) -> HostArray:
    """Return `count` different positions. NumPy draws them on all devices, so every node gets the same positions."""
    positions: HostArray = np.random.default_rng(seed).choice(entry_count, count, replace=False, shuffle=False)
    return positions
