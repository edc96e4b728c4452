"""Top-k: the entries with the largest magnitudes, and their positions."""

from typing import Literal, Self

from pydantic import Field

from services.compressors.base import Aggregation, ArrayFormat, CompressedPayload, Compressor, CompressorSeed
from services.compressors.encoding.largest_entries import count_kept_entries, find_largest_entries
from services.compressors.encoding.sparse import decompress_sparse, sparse_formats
from services.compressors.optional_contracts import SparseCompressor
from services.schema.arrays import Vector


class TopK(Compressor, SparseCompressor):
    """Top-k: the k = max(1, ratio·n) largest magnitudes of n entries, k rounded to a whole number; all others become 0.

    An entry that is sent takes the bytes of its value and four bytes for its position, so the compression ratio of fp32
    vectors is 1/(2·ratio). Entries that are sent have no error. The squared error is at most (1 - k/n)·‖v‖². It is not
    zero on average, so training needs error feedback. NaN counts as the largest magnitude. Of equal magnitudes, those
    with the lowest positions are sent.

    A. F. Aji and K. Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017. Difference from the
    paper: exactly k entries are sent, also with the estimated threshold, so that the size of a message is known before
    a run.
    """

    kind: Literal["top_k"] = "top_k"
    ratio: float = Field(default=0.01, gt=0, le=1, description="share of the entries that are sent")
    selection: Literal["exact", "sampled"] = Field(
        default="sampled",
        description="search for the largest entries: among all (exact), or among those above a threshold that is "
        "estimated from a sample (sampled); sampled takes less time and finds the same entries",
    )

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        count = count_kept_entries(self.ratio, vector.size)
        positions = find_largest_entries(vector, count, uses_sample=self.selection == "sampled")
        return CompressedPayload((vector[positions], positions), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        return decompress_sparse(payload)

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return sparse_formats(count_kept_entries(self.ratio, entry_count), dtype)

    @property
    def density(self) -> float:
        return self.ratio

    def with_density(self, density: float) -> Self:
        return self.model_copy(update={"ratio": density})
