"""PowerSGD: the sum of matrices, approximated by a product of two factors of low rank."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt

from services.compressors import Aggregation, ArrayShape, ModelDependentCompression, VectorCompression
from services.schema.component import SET_BY_ENSAYO
from services.schema.conflicts import KeyConflict
from services.schema.errors import ProtocolError
from services.strategies.vector_sums.low_rank_factors import LowRankLayout


class PowerSgd(VectorCompression, ModelDependentCompression):
    """PowerSGD: workers sum two factors of low rank instead of each array with two or more axes.

    Array k of worker i has the matrix Mᵢ = wᵢ·Gᵢ + Eᵢ of shape (rows, columns): the gradient Gᵢ times the worker's
    share wᵢ of the samples of this step, and the worker's residual. All workers have the same right factor Q of shape
    (columns, rank). One step of the power method is

        P = Σᵢ Mᵢ·Q, orthonormalised;  Q ← Σᵢ Mᵢᵀ·P;  update = P·Qᵀ;  Eᵢ ← Mᵢ - wᵢ·update

    P and Q are summed by one all-reduce each, over all arrays. Other arrays are summed uncompressed with P. The
    residuals have the sum of what the update lacks: the sum of all updates and all residuals is the sum of all weighted
    gradients, apart from rounding and whatever the weights of each step. With constant weights, Eᵢ/wᵢ is the residual
    of the paper, where all workers have equal weights and Mᵢ = Gᵢ + Eᵢ.

    The rank of an array is at most its number of rows and of columns; with this rank, the update is the sum itself. Q
    starts with random numbers that follow from the trial's seed. Other than in the paper, Q is orthonormalised before
    it is used, which changes P only by rounding. Columns that became 0, for example after a gradient of zeros, are
    drawn again. Orthonormal columns are computed without a constant in the denominator: columns that depend on others
    become 0 instead.

    T. Vogels, S. P. Karimireddy and M. Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed
    optimization", NeurIPS 2019.
    """

    kind: Literal["power_sgd"] = "power_sgd"
    rank: PositiveInt = Field(2, description="columns of each factor; at most the rows and columns of an array")
    warm_start: bool = Field(
        default=True, description="whether a step begins with the factor of the step before; else with a random factor"
    )
    min_ratio: NonNegativeFloat = Field(
        default=1.0,
        description="arrays with fewer entries than this multiple of the entries of their factors are not compressed",
    )
    array_shapes: tuple[ArrayShape, ...] = Field(
        (), description="shapes of the model's arrays; set by Ensayo, do not write it", json_schema_extra=SET_BY_ENSAYO
    )

    @property
    def aggregation(self) -> Aggregation:
        return "low_rank"

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def keeps_residual(self) -> bool:
        return True

    def fit_to_model(self, array_shapes: Sequence[ArrayShape]) -> Self:
        return self.model_copy(update={"array_shapes": tuple(array_shapes)})

    def find_model_conflicts(
        self, array_shapes: Sequence[ArrayShape], *, has_declared_payload: bool
    ) -> Iterator[KeyConflict]:
        another = "another compressor, such as error_feedback with top_k"
        if has_declared_payload:
            why = f"the messages of {self.kind} depend on the shapes of all arrays"
            remedy = f"use {another}, or remove workload.payload"
            yield KeyConflict((), f"{why}, which workload.payload does not declare; {remedy}")
        if array_shapes and not self._layout_of_arrays(array_shapes).factored:
            why = f"{self.kind} would compress no array of this model"
            yield KeyConflict((), f"{why}; use a smaller rank or min_ratio, or {another}")

    def layout_of_vector(self, entry_count: int) -> LowRankLayout:
        """Return which ranges of a vector with `entry_count` entries are replaced by factors.

        Raises:
            ProtocolError: the arrays of the model are not known, or the vector has another number of entries.
        """
        if not self.array_shapes:
            raise ProtocolError(f"{self.kind} has not been fitted to the arrays of a model")
        if (model_entries := sum(map(prod, self.array_shapes))) != entry_count:
            raise ProtocolError(
                f"{self.kind} is for a model with {model_entries:,} entries, but a vector has {entry_count:,} entries"
            )
        return self._layout_of_arrays(self.array_shapes)

    def _layout_of_arrays(self, array_shapes: Sequence[ArrayShape]) -> LowRankLayout:
        return LowRankLayout.of(array_shapes, self.rank, self.min_ratio)
