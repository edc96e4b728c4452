"""Deep gradient compression: sparse updates with momentum on each worker."""

from typing import Literal, NamedTuple, Self

from pydantic import Field

from services.compressors.base import Aggregation, ArrayFormat, CompressedPayload, Compressor, CompressorSeed
from services.compressors.encoding.largest_entries import count_kept_entries, find_largest_entries
from services.compressors.encoding.residuals import reset_non_finite
from services.compressors.encoding.sparse import decompress_sparse, sparse_formats
from services.compressors.optional_contracts import (
    FormatStage,
    MomentumCompressor,
    SparseCompressor,
    StagedCompressor,
)
from services.compressors.unselectable.local_momentum import LocalMomentum, clip_to_norm
from services.schema.arrays import Vector, without_divergence_warnings

WARM_UP_STAGES = 4


class DgcState(NamedTuple):
    """State of deep gradient compression on one worker, for one range of the parameter vector."""

    velocity: Vector | None = None  # u; None before the first gradient
    unsent: Vector | None = None  # v: sum of velocities that were not sent
    reset_count: int = 0  # entries of u and v that were set to zero because they were not finite
    vector_number: int = 0  # vectors compressed before


class Dgc(Compressor, SparseCompressor, MomentumCompressor, StagedCompressor):
    """Deep gradient compression (DGC): the k largest magnitudes of accumulated velocities, as in top-k.

    For each gradient g: u ← m·u + g, v ← v + u, where m is the momentum. The k = max(1, ratio·n) entries of v with the
    largest magnitudes are sent, and become 0 in v. With `masking`, they become 0 in u as well. The momentum replaces
    that of the optimiser, which must be plain SGD.

    With `clip_norm`, a gradient with a larger norm is scaled down before it is added. With `workers`, the limit is
    clip_norm/√workers, because each worker clips its own gradient. With several servers, the norm is that of the range
    which one server owns.

    With `warm_up_steps`, the share of the entries falls to `ratio` in stages of equal length: stage i of the four has
    the share ratio^(i/5). With a ratio of 0.1 %, these are 25, 6.3, 1.6 and 0.4 %, as in the paper, whose stages take
    one epoch each.

    An entry that is sent takes the bytes of its value and four bytes for its position. Without masking, the sum of all
    decompressed vectors and v is the sum of all velocities. NaN counts as the largest magnitude, so it is sent. Other
    values of u and v that aren't finite are set to zero and counted.

    Y. Lin et al., "Deep gradient compression: Reducing the communication bandwidth for distributed training", ICLR
    2018. Difference from the paper: entries are selected from the whole vector instead of from each layer.
    """

    kind: Literal["dgc"] = "dgc"
    ratio: float = Field(default=0.001, gt=0, le=1, description="share of the entries that are sent")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum m of each worker")
    masking: bool = Field(default=True, description="whether the velocity of sent entries is set to zero")
    clip_norm: float | None = Field(default=None, gt=0, description="largest norm of a gradient; null: any norm")
    workers: int | None = Field(
        default=None, ge=1, description="number of workers, whose square root divides clip_norm; null: 1"
    )
    warm_up_steps: int = Field(
        default=0,
        ge=0,
        multiple_of=WARM_UP_STAGES,
        description="steps during which more entries are sent, in four stages of equal length; 0: none",
    )

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    @property
    def keeps_residual(self) -> bool:
        return True

    def init_state(self, entry_count: int, seed: CompressorSeed) -> DgcState:  # noqa: ARG002 - the same for any length
        return DgcState()

    def compress(self, vector: Vector, state: DgcState) -> tuple[CompressedPayload, DgcState]:
        with without_divergence_warnings():
            gradient = clip_to_norm(vector, self.clip_norm, self.workers)
            velocity = gradient.copy() if state.velocity is None else self.momentum * state.velocity + gradient
            unsent = velocity.copy() if state.unsent is None else state.unsent + velocity
        count = count_kept_entries(self._ratio_of_vector(state.vector_number), vector.size)
        positions = find_largest_entries(unsent, count, uses_sample=True)
        payload = CompressedPayload((unsent[positions], positions), vector.size)
        unsent[positions] = 0
        if self.masking:
            velocity[positions] = 0
        reset_count = state.reset_count + reset_non_finite(velocity) + reset_non_finite(unsent)
        return payload, DgcState(velocity, unsent, reset_count, state.vector_number + 1)

    def decompress(self, payload: CompressedPayload) -> Vector:
        return decompress_sparse(payload)

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return sparse_formats(count_kept_entries(self.ratio, entry_count), dtype)

    @property
    def density(self) -> float:
        return self.ratio

    def with_density(self, density: float) -> Self:
        return self.model_copy(update={"ratio": density, "warm_up_steps": 0})

    @property
    def applies_momentum(self) -> bool:
        return self.momentum > 0

    def lossless_variant(self) -> LocalMomentum:
        return LocalMomentum(momentum=self.momentum, clip_norm=self.clip_norm, workers=self.workers)

    def list_format_stages(self) -> tuple[FormatStage, ...]:
        if not self.warm_up_steps:
            return ()
        length = self.warm_up_steps // WARM_UP_STAGES
        constant = self.after_format_stages()
        return tuple(
            FormatStage((stage + 1) * length, constant.model_copy(update={"ratio": self._ratio_of_stage(stage)}))
            for stage in range(WARM_UP_STAGES)
        )

    def after_format_stages(self) -> Self:
        return self.model_copy(update={"warm_up_steps": 0})

    def _ratio_of_vector(self, vector_number: int) -> float:
        """Return the share of the entries of a vector that are sent."""
        if vector_number >= self.warm_up_steps:
            return self.ratio
        stage = vector_number * WARM_UP_STAGES // self.warm_up_steps
        return self._ratio_of_stage(stage)

    def _ratio_of_stage(self, stage: int) -> float:
        """Return the share of the entries that are sent in a stage of the warm-up; the first has number 0."""
        return float(self.ratio ** ((stage + 1) / (WARM_UP_STAGES + 1)))
