"""Format of checkpoint files: prefix, header, and places of arrays.

| part | bytes | content |
| --- | --- | --- |
| prefix | 48 | magic bytes, format version, length of the header, SHA-256 digest of the header |
| header | at most 16 MiB | JSON: whose state it is, its structure, places of the arrays, digest of the data |
| data | to the end of the file | the arrays, little-endian and in C order; each begins at a multiple of 64 bytes |

Header and arrays are followed by zeros up to the next multiple of 64 bytes. The digest of the data covers all bytes
after the header. The digest in the prefix covers the header, and with it the digest of the data; all other bytes of the
prefix have one valid value.
"""

import hashlib
import struct
from math import prod
from typing import NamedTuple

import numpy as np
from pydantic import Field, JsonValue, field_validator

from services.checkpoints.state_tree import STORABLE_DTYPES
from services.schema.component import FrozenRecord

MAGIC = b"EnsayoCp"
FORMAT_VERSION = 1
PREFIX = struct.Struct("<8sII32s")  # magic bytes, format version, bytes of the header, digest of the header
MAX_HEADER_BYTES = 16 << 20
ALIGNMENT_BYTES = 64
MAX_AXES = 32  # of an array, as in all versions of NumPy
MAX_ARRAY_BYTES = 1 << 62  # with axes of length 0 counted as 1, so that sizes do not overflow in NumPy
DIGEST_PATTERN = "^[0-9a-f]{64}$"


class CheckpointIdentity(FrozenRecord):
    """Whose state a checkpoint file has, and after which step."""

    plan_digest: str = Field(pattern=DIGEST_PATTERN)  # of the trial plan
    trial: str
    node: str
    step: int = Field(ge=0)  # number of finished steps, which is the number of the next step
    epoch: int = Field(0, ge=0)  # of the membership
    samples: int = Field(0, ge=0)  # of all workers, used for the parameters


class ArrayLayout(FrozenRecord):
    """Type and shape of an array."""

    dtype: str  # as NumPy writes it, such as "<f4"
    shape: tuple[int, ...] = Field(max_length=MAX_AXES)

    @field_validator("dtype")
    @classmethod
    def _check_dtype(cls, dtype: str) -> str:
        if dtype not in STORABLE_DTYPES:
            raise ValueError(f"unknown data type {dtype!r}")
        return dtype

    @field_validator("shape")
    @classmethod
    def _check_shape(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if min(shape, default=0) < 0 or prod(max(length, 1) for length in shape) > MAX_ARRAY_BYTES >> 4:
            raise ValueError(f"impossible shape {shape}")
        return shape

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class StoredArray(ArrayLayout):
    """Type, shape and place of an array in a checkpoint file."""

    offset: int = Field(ge=0)  # of the first byte, from the start of the data


class CheckpointHeader(FrozenRecord):
    """Header of a checkpoint file."""

    identity: CheckpointIdentity
    structure: JsonValue  # of the state
    arrays: tuple[StoredArray, ...]  # in the order of their data
    data_digest: str = Field(pattern=DIGEST_PATTERN)  # SHA-256

    @property
    def data_bytes(self) -> int:
        """Size of the data, with the zeros after each array."""
        if not self.arrays:
            return 0
        last = self.arrays[-1]
        return round_up(last.offset + last.nbytes)


class FilePrefix(NamedTuple):
    """First bytes of a checkpoint file."""

    magic: bytes
    version: int
    header_bytes: int
    header_digest: bytes

    @classmethod
    def of_header(cls, header: bytes) -> "FilePrefix":
        """Return the prefix of a file with this header."""
        return cls(MAGIC, FORMAT_VERSION, len(header), hashlib.sha256(header).digest())

    @property
    def data_start(self) -> int:
        """Offset of the data from the start of the file."""
        return round_up(PREFIX.size + self.header_bytes)


def round_up(size: int) -> int:
    """Return the smallest multiple of the alignment that is not below `size`."""
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
