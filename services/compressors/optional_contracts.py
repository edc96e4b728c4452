"""Contracts of compressors with a special property, and functions that ask any compression for this property.

A compressor implements only the contracts that apply to it:

| contract | implemented by | asked by |
| --- | --- | --- |
| `SparseCompressor` | `top_k`, `random_k`, `dgc` | planner: density up to which compression pays |
| `MomentumCompressor` | `dgc` | validation of a scenario, `large_arrays_only` |
| `StagedCompressor` | `dgc` | planner, strategies: messages of other sizes in the first steps |
| `ModelDependentCompression` | `large_arrays_only`, `power_sgd` | strategies: sizes of the model's arrays |
| `RangeDependentCompressor` | `large_arrays_only` | strategies with servers: compression of a shard |
| `ErrorFeedbackInner` | `random_k`, `qsgd`, `sign` | `error_feedback` |

Callers use the functions of this module, which return a default for a compression that does not implement the contract.
Those on density, momentum and stages look inside wrappers; a wrapper itself implements the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self, TypeAlias, overload

from services.compressors.base import Compressor, UnguardedReason, VectorCompression
from services.compressors.wrappers.base import CompressorWrapper
from services.schema.conflicts import KeyConflict
from services.schema.errors import ProtocolError

ArrayShape: TypeAlias = tuple[int, ...]


class SparseCompressor(ABC):
    """Contract of compressors that send a share of the entries."""

    @property
    @abstractmethod
    def density(self) -> float:
        """Share of the entries that are sent, from 0 to 1."""

    @abstractmethod
    def with_density(self, density: float) -> Self:
        """Return a copy that sends another share of the entries, in all vectors."""


def find_density(compression: VectorCompression) -> float | None:
    """Return the share of the entries that a compression sends; None if the compression is not sparse."""
    if isinstance(compression, SparseCompressor):
        return compression.density
    return find_density(compression.inner) if isinstance(compression, CompressorWrapper) else None


def with_density(compressor: Compressor, density: float) -> Compressor:
    """Return a copy of a sparse compressor that sends another share of the entries, in all vectors.

    Raises:
        ProtocolError: the compressor is not sparse.
    """
    if isinstance(compressor, SparseCompressor):
        return compressor.with_density(density)
    if isinstance(compressor, CompressorWrapper):
        return compressor.with_inner(with_density(compressor.inner, density))
    raise ProtocolError(f"{compressor.kind} sends all entries, so it has no density")


class MomentumCompressor(ABC):
    """Contract of compressors that add momentum to gradients."""

    @property
    @abstractmethod
    def applies_momentum(self) -> bool:
        """Whether momentum is added to gradients, so that the optimiser must not add momentum again."""

    @abstractmethod
    def lossless_variant(self) -> Compressor:
        """Return the compressor that changes training like this one, but sends entries without an error.

        Its payload has one array, with the values of all entries.
        """


def applies_momentum(compression: VectorCompression) -> bool:
    """Return whether a compression adds momentum to gradients, so that the optimiser must not add momentum again."""
    if isinstance(compression, CompressorWrapper):
        return applies_momentum(compression.inner)
    return isinstance(compression, MomentumCompressor) and compression.applies_momentum


class FormatStage(NamedTuple):
    """Consecutive vectors of a sender whose payloads have equal sizes."""

    end: int  # number of the first vector after this stage
    compressor: Compressor  # all of whose payloads have these sizes


class StagedCompressor(ABC):
    """Contract of compressors whose first payloads may differ in size from all later ones."""

    @abstractmethod
    def list_format_stages(self) -> tuple[FormatStage, ...]:
        """Return the stages of the first vectors of a sender, whose payloads differ in size from all later ones."""

    @abstractmethod
    def after_format_stages(self) -> Self:
        """Return the compressor of the vectors after `list_format_stages`, for all vectors."""


def list_format_stages(compression: VectorCompression) -> tuple[FormatStage, ...]:
    """Return the stages of the first vectors of a sender, whose payloads differ in size from all later ones."""
    if isinstance(compression, StagedCompressor):
        return compression.list_format_stages()
    if isinstance(compression, CompressorWrapper):
        stages = list_format_stages(compression.inner)
        return tuple(FormatStage(end, compression.with_inner(inner)) for end, inner in stages)
    return ()


def after_format_stages(compressor: Compressor) -> Compressor:
    """Return the compressor of the vectors after `list_format_stages`, for all vectors."""
    if isinstance(compressor, StagedCompressor):
        return compressor.after_format_stages()
    if isinstance(compressor, CompressorWrapper):
        return compressor.with_inner(after_format_stages(compressor.inner))
    return compressor


class ModelDependentCompression(ABC):
    """Contract of compressions that depend on the arrays of the model.

    The vectors must begin and end like the parameter vector.
    """

    @abstractmethod
    def fit_to_model(self, array_shapes: Sequence[ArrayShape]) -> Self:
        """Return a copy for a model with arrays of these shapes, in the order of the parameter vector."""

    @abstractmethod
    def find_model_conflicts(
        self, array_shapes: Sequence[ArrayShape], *, has_declared_payload: bool
    ) -> Iterator[KeyConflict]:
        """Yield the reasons for which this compression cannot be used for a model, at the keys to change.

        Args:
            array_shapes: shapes of the model's arrays; empty: not known.
            has_declared_payload: whether messages are as large as those of another model.
        """


@overload
def fit_to_model(compression: Compressor, array_shapes: Sequence[ArrayShape]) -> Compressor: ...


@overload
def fit_to_model(compression: VectorCompression, array_shapes: Sequence[ArrayShape]) -> VectorCompression: ...


def fit_to_model(compression: VectorCompression, array_shapes: Sequence[ArrayShape]) -> VectorCompression:
    """Return a copy of a compression for a model with arrays of these shapes, in the order of the parameter vector."""
    return compression.fit_to_model(array_shapes) if isinstance(compression, ModelDependentCompression) else compression


class RangeDependentCompressor(ABC):
    """Contract of compressors that depend on the range of the parameter vector from which a vector is."""

    @abstractmethod
    def fit_to_range(self, start: int, stop: int) -> Self:
        """Return a copy for vectors that are the entries `start` to `stop` - 1 of the parameter vector."""


def fit_to_range(compressor: Compressor, start: int, stop: int) -> Compressor:
    """Return a compressor for vectors that are the entries `start` to `stop` - 1 of the parameter vector."""
    return compressor.fit_to_range(start, stop) if isinstance(compressor, RangeDependentCompressor) else compressor


class ErrorFeedbackUse(NamedTuple):
    """How error feedback uses a compressor."""

    compressor: Compressor  # used in place of the declared one, for example without a factor
    growth_reason: str = ""  # why residuals would grow without limit, with the remedy; empty: they do not
    unguarded_reason: UnguardedReason | None = None  # why sums are unguarded; None: they are lossy


class ErrorFeedbackInner(ABC):
    """Contract of compressors that error feedback does not use as they are, or not with all settings."""

    @abstractmethod
    def describe_error_feedback(self) -> ErrorFeedbackUse:
        """Return how error feedback uses this compressor."""


def describe_error_feedback(compressor: Compressor) -> ErrorFeedbackUse:
    """Return how error feedback uses a compressor."""
    if isinstance(compressor, ErrorFeedbackInner):
        return compressor.describe_error_feedback()
    return ErrorFeedbackUse(compressor)
