"""Packed bits: small whole numbers in as few bits as they need.

Numbers of b bits are stored as b bit planes: first the lowest bit of all numbers, then the second, and so on. Eight
numbers share a byte of each plane, so that any b needs only NumPy's `packbits`.
"""

from services.compressors.encoding.blocks import BucketBlock
from services.schema.arrays import Array, Vector, array_namespace


def count_packed_bytes(entry_count: int) -> int:
    """Return the number of bytes with one bit for each entry."""
    return -(-entry_count // 8)


class BitPlanes:
    """Bit planes of numbers below 2 to the power of `bits`, one number for each entry of a vector.

    `packed` has the shape (bits · bytes per plane,) and the type uint8. Blocks start at multiples of eight entries.
    """

    def __init__(self, packed: Vector, bits: int) -> None:
        self._planes = packed.reshape(bits, -1)

    def write_block(self, block: BucketBlock, numbers: Vector) -> None:
        """Pack the numbers of a block, of the type uint8."""
        xp = array_namespace(numbers)
        for bit, plane in enumerate(self._planes):
            plane[block.packed_bytes] = xp.packbits(numbers & (1 << bit))

    def read_block(self, block: BucketBlock) -> Vector:
        """Return the numbers of a block, of the type uint8."""
        size = block.entries.stop - block.entries.start
        lowest, *others = (unpack_bits(plane[block.packed_bytes], size) for plane in self._planes)
        for bit, plane in enumerate(others, start=1):
            lowest |= plane << bit
        return lowest


def unpack_bits(packed: Vector, entry_count: int) -> Vector:
    """Return the first `entry_count` bits as numbers 0 and 1, of the type uint8."""
    return array_namespace(packed).unpackbits(packed)[:entry_count]


def count_set_bits(packed: Array) -> Array:
    """Return the number of bits 1 in each row of bytes, as fp32. Shapes: (rows, bytes) → (rows,)."""
    pairs = packed - ((packed >> 1) & 0x55)
    quads = (pairs & 0x33) + ((pairs >> 2) & 0x33)
    return ((quads + (quads >> 4)) & 0x0F).sum(axis=1, dtype="float32")
