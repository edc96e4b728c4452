"""Payloads as bytes on the wire, and back."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np

from services.compressors.base import ArrayFormat, CompressedPayload, Compressor
from services.schema.arrays import Array, HostArray


def payload_to_bytes(payload: CompressedPayload, to_host_array: Callable[[Array], HostArray] = np.asarray) -> HostArray:
    """Return the bytes of a payload as an array in host memory, with shape (nbytes,).

    A single array in host memory is not copied.
    """
    parts = [np.ascontiguousarray(to_host_array(array)).view(np.uint8) for array in payload.arrays]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def bytes_to_payload(compressor: Compressor, wire_bytes: HostArray, entry_count: int, dtype: str) -> CompressedPayload:
    """Return the payload, with arrays in host memory, that was sent as bytes.

    The payload is that of a vector with `entry_count` entries of type `dtype`. Its arrays share the memory of
    `wire_bytes`.
    """
    return split_wire_bytes(wire_bytes, compressor.payload_dtypes_and_sizes(entry_count, dtype), entry_count)


def split_wire_bytes(wire_bytes: HostArray, formats: Sequence[ArrayFormat], entry_count: int) -> CompressedPayload:
    """Return the payload, with arrays of these formats, that was sent as bytes.

    Its arrays share the memory of `wire_bytes`.
    """
    ends = accumulate((np.dtype(name).itemsize * size for name, size in formats), initial=0)
    parts = zip(formats, pairwise(ends), strict=True)
    arrays = tuple(wire_bytes[start:stop].view(name) for (name, _), (start, stop) in parts)
    return CompressedPayload(arrays, entry_count)


def bytes_to_vector(compressor: Compressor, wire_bytes: HostArray, entry_count: int, dtype: str) -> HostArray:
    """Return the vector, with shape (entries,) and type `dtype`, that the bytes of a payload encode."""
    return np.asarray(compressor.decompress(bytes_to_payload(compressor, wire_bytes, entry_count, dtype)), dtype)
