"""Signs of a vector as packed bits: 1 for a negative entry, 0 for any other entry, zero and NaN included."""

from services.compressors.encoding.bit_packing import unpack_bits
from services.compressors.encoding.blocks import list_bucket_blocks
from services.schema.arrays import Vector, array_namespace


def decode_signs(packed: Vector, entry_count: int, bucket: int, negatives: Vector, others: Vector) -> Vector:
    """Return a fp32 vector with one value for the negative entries of each bucket and one for its other entries.

    Shapes: packed (bytes,), negatives and others (buckets,) → (entry_count,).
    """
    xp = array_namespace(packed)
    vector_bits = xp.empty(entry_count, "uint32")  # of fp32 values: a choice by whole numbers costs a tenth of `where`
    other_bits, different_bits = others.view("uint32"), negatives.view("uint32") ^ others.view("uint32")
    for block in list_bucket_blocks(vector_bits, bucket):
        rows = block.rows_of(vector_bits)
        rows[...] = unpack_bits(packed[block.packed_bytes], rows.size).reshape(rows.shape)
        rows *= different_bits[block.buckets][:, None]
        rows ^= other_bits[block.buckets][:, None]
    return vector_bits.view("float32")
