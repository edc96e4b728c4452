"""Payloads of quantised vectors: the step of each bucket as fp32, and levels in as few bits as they need."""

from services.compressors.base import ArrayFormat, CompressedPayload
from services.compressors.encoding.bit_packing import BitPlanes, count_packed_bytes
from services.compressors.encoding.blocks import count_buckets, list_bucket_blocks
from services.compressors.encoding.levels import RowPeaks, iterate_levels
from services.compressors.encoding.randomness import VectorRandomness
from services.schema.arrays import Vector, array_namespace, without_divergence_warnings


def compress_levels(
    vector: Vector, bucket: int, find_peaks: RowPeaks, levels: int, randomness: VectorRandomness, *, clips: bool = False
) -> CompressedPayload:
    """Return the payload of a vector after stochastic rounding to the levels -levels … levels of each bucket.

    `find_peaks` returns the magnitude of each bucket's largest level. With `clips`, entries may exceed it.
    """
    xp = array_namespace(vector)
    (_, step_count), (_, packed_size) = packed_level_formats(vector.size, bucket, levels)
    steps, packed = xp.empty(step_count, "float32"), xp.empty(packed_size, "uint8")
    planes = BitPlanes(packed, _count_bits(levels))
    generator = randomness.create_generator(vector)
    with without_divergence_warnings():
        for block, block_steps, signed in iterate_levels(vector, bucket, find_peaks, levels, generator, clips=clips):
            steps[block.buckets] = block_steps
            planes.write_block(block, (signed + levels).view("uint8"))
    return CompressedPayload((steps, packed), vector.size)


def decompress_levels(payload: CompressedPayload, bucket: int, levels: int) -> Vector:
    """Return the fp32 vector of a payload of `compress_levels`."""
    steps, packed = payload.arrays
    vector = array_namespace(packed).empty(payload.entries, "float32")
    planes = BitPlanes(packed, _count_bits(levels))
    for block in list_bucket_blocks(vector, bucket):
        rows = block.rows_of(vector)
        rows[...] = planes.read_block(block).reshape(rows.shape)
        rows -= levels
        rows *= steps[block.buckets][:, None]
    return vector


def packed_level_formats(entry_count: int, bucket: int, levels: int) -> tuple[ArrayFormat, ArrayFormat]:
    """Return the types and lengths of the arrays in a payload of `compress_levels`."""
    packed_size = _count_bits(levels) * count_packed_bytes(entry_count)
    return (("float32", count_buckets(entry_count, bucket)), ("uint8", packed_size))


def _count_bits(levels: int) -> int:
    """Return the number of bits of the numbers 0 … 2·levels."""
    return (2 * levels).bit_length()
