"""Conflicts of a strategy's compressors with the model, and copies of compressors that know the model's arrays."""

from collections.abc import Iterator, Mapping, Sequence

from services.compressors import ArrayShape, ModelDependentCompression, VectorCompression, fit_to_model
from services.schema.conflicts import KeyConflict, prepend_parent_key
from services.strategies.base import ScenarioSizes


def find_array_conflicts(
    compressors: Mapping[str, VectorCompression], scenario_sizes: ScenarioSizes
) -> Iterator[KeyConflict]:
    """Yield the conflicts of the compressors, by their key in the strategy, with the model of a scenario."""
    for key, compressor in compressors.items():
        if isinstance(compressor, ModelDependentCompression):
            conflicts = compressor.find_model_conflicts(
                scenario_sizes.array_shapes, has_declared_payload=scenario_sizes.has_declared_payload
            )
            yield from prepend_parent_key(key, conflicts)


def find_shared_scale_conflicts(compressors: Mapping[str, VectorCompression]) -> Iterator[KeyConflict]:
    """Yield a conflict for each compressor, by its key in the strategy, that needs sums of gradients in all_reduce."""
    for key, compressor in compressors.items():
        if compressor.aggregation == "shared_scale":
            why = (
                f"compressor {compressor.kind} with scale: shared needs the largest magnitudes of all workers, which "
                "only strategy all_reduce exchanges"
            )
            yield KeyConflict((key, "scale"), f"{why}; write scale: local, or use strategy all_reduce")


def fit_compressors(
    compressors: Mapping[str, VectorCompression], array_shapes: Sequence[ArrayShape]
) -> dict[str, VectorCompression]:
    """Return copies of compressors, by their key in the strategy, for a model with arrays of these shapes."""
    return {key: fit_to_model(compressor, array_shapes) for key, compressor in compressors.items()}
