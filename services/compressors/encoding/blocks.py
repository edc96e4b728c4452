"""Blocks of a vector that fit into the cache, and buckets of entries that share a scale.

Compressors read a vector several times. Block by block, all reads except the first come from the cache of the CPU. A
GPU processes the whole vector at once, because each call of CuPy takes longer than a short block.
"""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

import numpy as np

from services.schema.arrays import Array, Vector, array_namespace

MAX_BUCKET = 1 << 24  # entries
BLOCK_ENTRIES = 1 << 15  # 128 KiB of fp32: a block and its intermediate results fit into a cache of 1 MiB


class BucketBlock(NamedTuple):
    """Consecutive whole buckets of a vector."""

    entries: slice  # of the vector
    buckets: slice  # among all buckets of the vector
    bucket_size: int  # entries of each bucket in the block

    @property
    def packed_bytes(self) -> slice:
        """Bytes of the block's entries, where eight entries share a byte."""
        return slice(self.entries.start // 8, -(-self.entries.stop // 8))

    def rows_of(self, vector: Vector) -> Array:
        """Return the block of a vector with one bucket per row, as a view of the vector's memory."""
        return vector[self.entries].reshape(-1, self.bucket_size)


def list_blocks(vector: Vector) -> Iterator[slice]:
    """Yield consecutive ranges that cover the vector and fit into the cache; one range for a vector on a GPU."""
    length = max(1, _block_entries(vector))
    for start in range(0, vector.size, length):
        yield slice(start, min(start + length, vector.size))


def list_bucket_blocks(vector: Vector, bucket: int) -> Iterator[BucketBlock]:
    """Yield consecutive blocks that cover the vector, each with buckets of one size.

    The last bucket is shorter if `bucket` does not divide the length of the vector. It is a block of its own.
    """
    whole_buckets = vector.size // bucket
    buckets_per_block = max(1, _block_entries(vector) // bucket)
    for first in range(0, whole_buckets, buckets_per_block):
        stop = min(first + buckets_per_block, whole_buckets)
        yield BucketBlock(slice(first * bucket, stop * bucket), slice(first, stop), bucket)
    if rest := vector.size % bucket:
        yield BucketBlock(slice(vector.size - rest, vector.size), slice(whole_buckets, whole_buckets + 1), rest)


def count_buckets(entry_count: int, bucket: int) -> int:
    """Return the number of buckets of a vector; the last may be shorter than `bucket`."""
    return ceil(entry_count / bucket)


def _block_entries(vector: Vector) -> int:
    return BLOCK_ENTRIES if array_namespace(vector) is np else int(vector.size)
