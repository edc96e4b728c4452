"""Payloads of sparse vectors: values, and their positions as uint32."""

from services.compressors.base import ArrayFormat, CompressedPayload
from services.schema.arrays import Vector, array_namespace


def decompress_sparse(payload: CompressedPayload) -> Vector:
    """Return the vector with the values at their positions and zeros elsewhere."""
    values, positions = payload.arrays
    vector = array_namespace(values).zeros(payload.entries, values.dtype)
    vector[positions] = values
    return vector


def sparse_formats(kept_count: int, dtype: str) -> tuple[ArrayFormat, ArrayFormat]:
    """Return the types and lengths of the arrays in a payload with `kept_count` values of type `dtype`."""
    return ((dtype, kept_count), ("uint32", kept_count))
