"""Sums of compressed vectors whose payloads are not decompressed at every hop.

Each rank compresses its vector once. Then either all ranks gather the payloads of all ranks, or they add the payloads.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple
from zlib import crc32

import numpy as np

from services.collectives.base import TransferSchedule
from services.collectives.execution.executor import GroupMember, run_transfers
from services.compressors import ArrayFormat, CompressedPayload
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError

CHECKSUM_BITS = 32


async def gather_payloads(
    member: GroupMember, schedule: TransferSchedule, step: int, own_bytes: HostArray
) -> Sequence[HostArray]:
    """Return the payloads of all ranks as bytes, by rank.

    Args:
        member: this rank and its group.
        schedule: result of `AllGather.plan_transfers`.
        step: number that separates the messages of this call from those of other calls.
        own_bytes: bytes of this rank's payload, of the type uint8. All ranks have payloads of the same size.

    Raises:
        ProtocolError: a rank has sent a payload of another size.
    """
    gathered = np.empty((len(member.node_names), own_bytes.size), np.uint8)
    gathered[member.rank] = own_bytes
    await run_transfers(member, schedule, step, gathered.reshape(-1))
    return list(gathered)


async def add_payloads(
    member: GroupMember, schedule: TransferSchedule, step: int, own_payload: CompressedPayload
) -> CompressedPayload:
    """Return the sum of the payloads of all ranks, with arrays in host memory.

    Arrays of floating-point numbers are added. Other arrays describe what the payload encodes, for example which
    entries of the vector. They are not sent, and must be equal on all ranks: each rank adds a checksum of its own ones
    to the sum.

    Args:
        member: this rank and its group.
        schedule: result of `Collective.plan_transfers`.
        step: number that separates the messages of this call from those of other calls.
        own_payload: payload of this rank, with arrays in host memory.

    Raises:
        ProtocolError: the other arrays are not equal on all ranks.
    """
    layout = PayloadSumLayout.of([(array.dtype.name, array.size) for array in own_payload.arrays])
    summands = [array for array in own_payload.arrays if _is_summed(array.dtype.name)]
    ranks, checksum = len(member.node_names), _compute_checksum(own_payload)
    own_parts = layout.split_checksum(checksum, ranks)
    total = np.concatenate([*summands, own_parts]).astype(layout.dtype, copy=False)
    await run_transfers(member, schedule, step, total)
    if (total[layout.entry_count :] != ranks * own_parts).any():
        raise ProtocolError(
            f"{member.node_names[member.rank]} compresses other entries than another rank in exchange {step}; payloads "
            "can be added only if all ranks encode the same entries"
        )
    return CompressedPayload(_replace_summands(own_payload, total), own_payload.entries)


class PayloadSumLayout(NamedTuple):
    """Layout of the vector in which ranks add their payloads: all floating-point numbers, then a checksum of the rest.

    The checksum consists of whole numbers that are so small that their sum over all ranks is exact.
    """

    dtype: str
    entry_count: int  # floating-point numbers of the payload
    has_checksum: bool  # whether the payload has other arrays

    @classmethod
    def of(cls, formats: Sequence[ArrayFormat]) -> "PayloadSumLayout":
        """Return the layout for a payload with arrays of these formats.

        Raises:
            ProtocolError: the payload has no floating-point numbers, or numbers of several types.
        """
        dtypes = sorted({name for name, _ in formats if _is_summed(name)})
        if len(dtypes) != 1:
            found = ", ".join(dtypes) or "none"
            raise ProtocolError(f"a payload that is added needs floating-point numbers of one type; it has {found}")
        entry_count = sum(size for name, size in formats if _is_summed(name))
        return cls(dtypes[0], entry_count, any(not _is_summed(name) for name, _ in formats))

    def total_entry_count(self, rank_count: int) -> int:
        """Return the length of the vector, with the checksum."""
        return self.entry_count + (self._count_checksum_entries(rank_count) if self.has_checksum else 0)

    def split_checksum(self, checksum: int, rank_count: int) -> HostArray:
        """Return a checksum as whole numbers whose sum over all ranks is exact; empty if the payload needs none."""
        bits, count = self._bits_per_entry(rank_count), self.total_entry_count(rank_count) - self.entry_count
        parts = [(checksum >> (bits * number)) & ((1 << bits) - 1) for number in range(count)]
        return np.array(parts, self.dtype)

    def _count_checksum_entries(self, rank_count: int) -> int:
        return ceil(CHECKSUM_BITS / self._bits_per_entry(rank_count))

    def _bits_per_entry(self, rank_count: int) -> int:
        """Return the bits of a number whose `rank_count`-fold the data type represents exactly."""
        return max(1, np.finfo(self.dtype).nmant + 1 - rank_count.bit_length())


def _is_summed(dtype: str) -> bool:
    return np.dtype(dtype).kind == "f"


def _compute_checksum(payload: CompressedPayload) -> int:
    """Return a checksum of the arrays that are not added."""
    checksum = 0
    for array in payload.arrays:
        if not _is_summed(array.dtype.name):
            checksum = crc32(np.ascontiguousarray(array).data.cast("B"), checksum)
    return checksum


def _replace_summands(payload: CompressedPayload, total: HostArray) -> tuple[HostArray, ...]:
    """Return the arrays of a payload, with those that are added replaced by the total."""
    sizes = [array.size if _is_summed(array.dtype.name) else 0 for array in payload.arrays]
    parts = [total[start:stop] for start, stop in pairwise(accumulate(sizes, initial=0))]
    return tuple(
        part if _is_summed(array.dtype.name) else array for part, array in zip(parts, payload.arrays, strict=True)
    )
