"""Compressors of whole vectors, with and without a state, for tests of sums of payloads."""

from typing import Any, Literal, NamedTuple

import numpy as np

from services.compressors import CompressedPayload, Compressor, CompressorSeed
from services.compressors.base import Aggregation, ArrayFormat
from services.schema.arrays import Vector, array_namespace


class GatheredIdentity(Compressor):
    """The vector unchanged, gathered from all workers instead of added at every hop."""

    kind: Literal["gathered_identity"] = "gathered_identity"

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        return None

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        return CompressedPayload((vector,), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        return payload.arrays[0]

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return ((dtype, entry_count),)


class LargestEntries(Compressor):
    """The entries of largest magnitude with their indices; the state is the residual, which was not sent so far."""

    kind: Literal["largest_entries"] = "largest_entries"
    share: float = 0.25

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    def sent_count(self, entry_count: int) -> int:
        return max(1, round(self.share * entry_count))

    def init_state(self, entry_count: int, seed: CompressorSeed) -> Any:
        return np.zeros(entry_count)

    def compress(self, vector: Vector, state: Any) -> tuple[CompressedPayload, Any]:
        xp = array_namespace(vector)
        wanted = vector + xp.asarray(state).astype(vector.dtype)
        largest = xp.argsort(abs(wanted))[-self.sent_count(vector.size) :].astype("uint32")
        values, residual = wanted[largest], wanted.copy()
        residual[largest] = 0
        return CompressedPayload((largest, values), vector.size), residual

    def decompress(self, payload: CompressedPayload) -> Vector:
        indices, values = payload.arrays
        vector = array_namespace(values).zeros(payload.entries, values.dtype)
        vector[indices] = values
        return vector

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return (("uint32", self.sent_count(entry_count)), (dtype, self.sent_count(entry_count)))


class DrawnEntriesState(NamedTuple):
    """State of `DrawnEntries`."""

    seed: int
    vectors: int  # so far
    residual: Any


class DrawnEntries(Compressor):
    """Entries drawn with the seed of the trial, the same on all workers; the state has the residual."""

    kind: Literal["drawn_entries"] = "drawn_entries"
    share: float = 0.25
    draws_by_sender: bool = False  # a mistake: workers would draw different entries

    @property
    def aggregation(self) -> Aggregation:
        return "payloads"

    def sent_count(self, entry_count: int) -> int:
        return max(1, round(self.share * entry_count))

    def init_state(self, entry_count: int, seed: CompressorSeed) -> DrawnEntriesState:
        return DrawnEntriesState(seed.trial_seed + self.draws_by_sender * seed.sender, 0, np.zeros(entry_count))

    def compress(self, vector: Vector, state: DrawnEntriesState) -> tuple[CompressedPayload, DrawnEntriesState]:
        rng = np.random.default_rng((state.seed, state.vectors))
        drawn = rng.permutation(vector.size)[: self.sent_count(vector.size)].astype("uint32")
        wanted = vector + state.residual.astype(vector.dtype)
        values, residual = wanted[drawn], wanted.copy()
        residual[drawn] = 0
        return CompressedPayload((drawn, values), vector.size), DrawnEntriesState(
            state.seed, state.vectors + 1, residual
        )

    def decompress(self, payload: CompressedPayload) -> Vector:
        drawn, values = payload.arrays
        vector = np.zeros(payload.entries, values.dtype)
        vector[drawn] = values
        return vector

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return (("uint32", self.sent_count(entry_count)), (dtype, self.sent_count(entry_count)))
