"""Deep gradient compression: sparse updates with momentum on each worker."""

from math import sqrt
from typing import Literal, NamedTuple

from pydantic import Field

from services.compressors.base import Aggregation, ArrayFormat, CompressedPayload, Compressor, CompressorSeed
from services.compressors.encoding.largest_entries import count_kept_entries, find_largest_entries
from services.compressors.encoding.residuals import reset_non_finite
from services.compressors.encoding.sparse import decompress_sparse, sparse_formats
from services.schema.arrays import Vector, array_namespace, euclidean_norm, without_divergence_warnings


class DgcState(NamedTuple):
    """State of deep gradient compression on one worker, for one range of the parameter vector."""

    velocity: Vector | None = None  # u; None before the first gradient
    unsent: Vector | None = None  # v: sum of velocities that were not sent
    reset_count: int = 0  # entries of u and v that were set to zero because they were not finite


class Dgc(Compressor):
    """Deep gradient compression (DGC): the k largest magnitudes of accumulated velocities, as in top-k.

    For each gradient g: u ← m·u + g, v ← v + u, where m is the momentum. The k = max(1, ratio·n) entries of v with the
    largest magnitudes are sent, and become 0 in v. With `masking`, they become 0 in u as well. The momentum replaces
    that of the optimiser, which must be plain SGD.

    With `clip_norm`, a gradient with a larger norm is scaled down before it is added. With `workers`, the limit is
    clip_norm/√workers, because each worker clips its own gradient. With several servers, the norm is that of the range
    which one server owns.

    An entry that is sent takes the bytes of its value and four bytes for its position. Without masking, the sum of all
    decompressed vectors and v is the sum of all velocities. NaN counts as the largest magnitude, so it is sent. Other
    values of u and v that aren't finite are set to zero and counted.

    Y. Lin et al., "Deep gradient compression: Reducing the communication bandwidth for distributed training", ICLR
    2018. Differences from the paper: the ratio is constant from the first step (no warm-up of the density), since the
    size of a message is known before a run; entries are selected from the whole vector instead of from each layer.
    """

    kind: Literal["dgc"] = "dgc"
    ratio: float = Field(default=0.001, gt=0, le=1, description="share of the entries that are sent")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum m of each worker")
    masking: bool = Field(default=True, description="whether the velocity of sent entries is set to zero")
    clip_norm: float | None = Field(default=None, gt=0, description="largest norm of a gradient; null: any norm")
    workers: int | None = Field(
        default=None, ge=1, description="number of workers, whose square root divides clip_norm; null: 1"
    )

    @property
    def keeps_residual(self) -> bool:
        return True

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    @property
    def applies_momentum(self) -> bool:
        return self.momentum > 0

    def init_state(self, entry_count: int, seed: CompressorSeed) -> DgcState:  # noqa: ARG002 - the same for any length
        return DgcState()

    def compress(self, vector: Vector, state: DgcState) -> tuple[CompressedPayload, DgcState]:
        with without_divergence_warnings():
            gradient = self._clip(vector)
            velocity = gradient.copy() if state.velocity is None else self.momentum * state.velocity + gradient
            unsent = velocity.copy() if state.unsent is None else state.unsent + velocity
        count = count_kept_entries(self.ratio, vector.size)
        positions = find_largest_entries(unsent, count, uses_sample=True)
        payload = CompressedPayload((unsent[positions], positions), vector.size)
        unsent[positions] = 0
        if self.masking:
            velocity[positions] = 0
        reset_count = state.reset_count + reset_non_finite(velocity) + reset_non_finite(unsent)
        return payload, DgcState(velocity, unsent, reset_count)

    def decompress(self, payload: CompressedPayload) -> Vector:
        return decompress_sparse(payload)

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return sparse_formats(count_kept_entries(self.ratio, entry_count), dtype)

    def _clip(self, gradient: Vector) -> Vector:
        """Return the gradient with its norm limited to clip_norm/√workers."""
        if self.clip_norm is None:
            return gradient
        norm = euclidean_norm(gradient)
        limit = self.clip_norm / sqrt(self.workers or 1)
        xp = array_namespace(gradient)
        return gradient * (limit / xp.maximum(norm, limit)).astype(gradient.dtype)
