"""How long does a shaped link take? The fluid model that the virtual fabric and the `local` engine share.

A message passes one port after the other: its sender's uplink, the pipes that it shares with others, its receiver's
downlink. It leaves one port while it enters the next, so a flow alone is as fast as the slowest of them, and n flows
through one port take n times as long. A port has no buffer that could overflow: what waits for it, waits.
"""

import fcntl
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

# A shaped rate counts whole Ethernet frames as tc does: 1448 bytes of payload travel in 1514.
PAYLOAD_SHARE = 1448 / 1514


def goodput(rate_bps: float | None) -> float:
    """Payload bytes per second that a link of `rate_bps` bit/s carries; infinite when it is not shaped."""
    return inf if rate_bps is None else rate_bps * PAYLOAD_SHARE / 8


# A port passes messages one after the other; cut finely, the messages of several streams share it as TCP flows do.
# As finely as TCP's first window where vectors are short: a server that answers many workers with a quantum each serves
# them one after another, and spreads their next steps. Longer ones are shared well in fewer messages, which cost time.
FINE_QUANTUM_BYTES, QUANTUM_BYTES = 16 << 10, 64 << 10
QUANTA = 32  # of a vector, at least, where they need not be finer


def quantum_bytes(vector_bytes: int) -> int:
    """The longest message that passes a port where nobody but the transport shapes links."""
    return min(max(vector_bytes // QUANTA, FINE_QUANTUM_BYTES), QUANTUM_BYTES)


def last_piece_bytes(size_bytes: float, vector_bytes: int) -> float:
    """Of a range of `size_bytes` that is sent in messages of this length, the last one."""
    return size_bytes % quantum_bytes(vector_bytes) or min(size_bytes, quantum_bytes(vector_bytes))


class Passage(NamedTuple):
    """When the first byte of a message has come through a port, and when the last; virtual seconds."""

    begins: float
    ends: float


class Cell(ABC):
    """Where the state of a port is kept: one number that changes in one piece."""

    @abstractmethod
    def replace(self, change: Callable[[float], float]) -> tuple[float, float]:
        """Put `change` of the number in its place; the number before and after."""


@dataclass(slots=True)
class Own(Cell):
    """For a port that one process uses."""

    value: float = 0.0

    def replace(self, change: Callable[[float], float]) -> tuple[float, float]:
        before, self.value = self.value, change(self.value)
        return before, self.value


class SharedCells:
    """A file with the numbers of ports that processes share; whoever changes one holds a lock on its bytes."""

    _NUMBER = struct.Struct("=d")

    def __init__(self, path: Path) -> None:
        """Open a file that `create` has made, for as long as the process lives."""
        self._file = os.open(path, os.O_RDWR)
        self._memory = mmap(self._file, 0)

    @classmethod
    def create(cls, path: Path, count: int) -> None:
        """A new file for `count` numbers, all zero."""
        path.write_bytes(bytes(max(1, count) * cls._NUMBER.size))

    def cell(self, index: int) -> Cell:
        """The number at a place, counted from 0."""
        return _SharedCell(self, index * self._NUMBER.size)

    def replace(self, offset: int, change: Callable[[float], float]) -> tuple[float, float]:
        """As `Cell.replace`, for the number at a byte of the file."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, self._NUMBER.size, offset)
        try:
            (before,) = self._NUMBER.unpack_from(self._memory, offset)
            after = change(before)
            self._NUMBER.pack_into(self._memory, offset, after)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, self._NUMBER.size, offset)
        return before, after


@dataclass(frozen=True, slots=True)
class _SharedCell(Cell):
    cells: SharedCells
    offset: int

    def replace(self, change: Callable[[float], float]) -> tuple[float, float]:
        return self.cells.replace(self.offset, change)


@dataclass(slots=True)
class Port:
    """One direction of a link, or a pipe: a rate, and until when it is spoken for."""

    bytes_per_s: float
    cell: Cell = field(default_factory=Own)

    def carry(self, message: Passage, size: int) -> Passage:
        """Let a message through that comes in while `message` tells, behind those before it.

        The port is charged what the message takes of it, size over rate, and no more: a message that comes in slowly
        leaves room for others beside it.
        """
        before, free_at = self.cell.replace(lambda free_at: max(message.begins, free_at) + size / self.bytes_per_s)
        return Passage(max(message.begins, before), max(message.ends, free_at))

    @property
    def free_at(self) -> float:
        """Until when it is spoken for."""
        return self.cell.replace(lambda free_at: free_at)[0]
