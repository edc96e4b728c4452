"""Fluid model of a link with a limited rate, which computes when each message has passed the link.

The virtual transport and engine `local` use it. A message passes rate limiters one after the other: its sender's
uplink, the shared links on its path, its receiver's downlink. It leaves one limiter while it enters the next. So a flow
alone is as fast as the slowest limiter on its path, and n flows through one limiter take n times as long. A limiter has
no buffer that could overflow: waiting messages stay with their senders.
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

from services.cluster.links.ethernet import FRAME_BYTES, PAYLOAD_BYTES

PAYLOAD_SHARE = PAYLOAD_BYTES / FRAME_BYTES  # a shaped rate counts whole Ethernet frames, as tc does


def to_goodput_bytes_per_s(link_rate_bps: float | None) -> float:
    """Return the payload bytes per second that a link of `link_rate_bps` bit/s carries.

    The result is infinite if unshaped.
    """
    return inf if link_rate_bps is None else link_rate_bps * PAYLOAD_SHARE / 8


# A rate limiter passes messages one after the other. Streams of short messages share it as TCP flows would. A vector of
# up to 512 KiB is cut into messages of the minimum, which is TCP's first window: a server that replies to many workers
# serves them one after another, and longer messages would spread the workers' next steps. A vector of 2 MiB or more is
# cut into messages of the maximum: they share a link well enough, and each message costs time on the host.
MIN_FLUID_MESSAGE_BYTES, MAX_FLUID_MESSAGE_BYTES = 16 << 10, 64 << 10
MIN_FLUID_MESSAGES_PER_VECTOR = 32  # unless the messages would be shorter than the minimum


# A vector of a declared size (`workload.payload`) may be as large as that of any model, but only a small model is
# trained. Above 64 MiB, it is cut into 16 messages, so that neither its size nor many workers make a step expensive on
# the host: an all-reduce of 32 workers with 1,024 messages per vector takes seconds to compute. Step times of
# parameter servers differ by less than 0.1 % from those with 1,024 messages; with 8, asynchronous ones differ by 7 %.
LONG_DECLARED_VECTOR_BYTES, MESSAGES_PER_LONG_DECLARED_VECTOR = 64 << 20, 16


def choose_message_bytes(vector_bytes: int, *, is_declared_size: bool = False) -> int:
    """Return the size in bytes of the messages into which a vector is cut.

    Applies where the fluid model of this module, not the kernel, limits link rates.

    Args:
        vector_bytes: size of the vector on the wire.
        is_declared_size: whether the scenario declares this size; otherwise it is that of the trained model.
    """
    usual = min(max(vector_bytes // MIN_FLUID_MESSAGES_PER_VECTOR, MIN_FLUID_MESSAGE_BYTES), MAX_FLUID_MESSAGE_BYTES)
    if not is_declared_size or vector_bytes <= LONG_DECLARED_VECTOR_BYTES:
        return usual
    return vector_bytes // MESSAGES_PER_LONG_DECLARED_VECTOR


class FirstLastByteTimes(NamedTuple):
    """Virtual times in seconds at which the first and the last byte of a message have passed a rate limiter."""

    begin_s: float
    end_s: float


class AtomicFloat(ABC):
    """Number that is read and replaced atomically, such as the time at which a rate limiter becomes free."""

    @abstractmethod
    def update(self, transform: Callable[[float], float]) -> tuple[float, float]:
        """Replace the number by `transform(number)`.

        Return the numbers before and after the replacement.
        """


@dataclass(slots=True)
class InProcessAtomicFloat(AtomicFloat):
    """An atomic number in the memory of a single process."""

    value: float = 0.0

    def update(self, transform: Callable[[float], float]) -> tuple[float, float]:
        before, self.value = self.value, transform(self.value)
        return before, self.value


class AtomicFloatFile:
    """A file of numbers that several processes share.

    An update locks the bytes of the updated number.
    """

    _NUMBER = struct.Struct("=d")

    def __init__(self, path: Path) -> None:
        """Open a file of shared numbers, written by `create`.

        The file stays open until the process ends.
        """
        self._file = os.open(path, os.O_RDWR)
        self._memory = mmap(self._file, 0)

    @classmethod
    def create(cls, path: Path, number_count: int) -> None:
        """Write a new file with `number_count` numbers, all zero."""
        path.write_bytes(bytes(max(1, number_count) * cls._NUMBER.size))

    def number_at(self, index: int) -> AtomicFloat:
        """Return the number at an index of the file, as an object for atomic updates.

        Indices are counted from 0.
        """
        return _AtomicFloatInFile(self, index * self._NUMBER.size)

    def update_number(self, offset_bytes: int, transform: Callable[[float], float]) -> tuple[float, float]:
        """Replace the number at a byte offset by `transform(number)`.

        Return the numbers before and after.
        """
        fcntl.lockf(self._file, fcntl.LOCK_EX, self._NUMBER.size, offset_bytes)
        try:
            (before,) = self._NUMBER.unpack_from(self._memory, offset_bytes)
            after = transform(before)
            self._NUMBER.pack_into(self._memory, offset_bytes, after)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, self._NUMBER.size, offset_bytes)
        return before, after


@dataclass(frozen=True, slots=True)
class _AtomicFloatInFile(AtomicFloat):
    """Atomic number in a file that several processes share."""

    file: AtomicFloatFile
    offset_bytes: int

    def update(self, transform: Callable[[float], float]) -> tuple[float, float]:
        return self.file.update_number(self.offset_bytes, transform)


@dataclass(slots=True)
class RateLimiter:
    """One direction of a link with a limited rate.

    The limiter knows its rate and the virtual time until which earlier messages occupy the link.
    """

    bytes_per_s: float  # of payload
    free_at_number: AtomicFloat = field(default_factory=InProcessAtomicFloat)  # virtual seconds

    def pass_and_time_message(self, byte_arrival_times: FirstLastByteTimes, size_bytes: int) -> FirstLastByteTimes:
        """Pass a message through the limiter after all earlier messages.

        The message has `size_bytes` bytes. Return the times when its first and last byte leave. The message arrives at
        the times given by the first argument. It occupies the limiter for size / rate and no longer: a message that
        arrives slowly leaves room for other messages.
        """
        occupied_s = size_bytes / self.bytes_per_s
        before, free_at = self.free_at_number.update(
            lambda free_at: max(byte_arrival_times.begin_s, free_at) + occupied_s
        )
        return FirstLastByteTimes(max(byte_arrival_times.begin_s, before), max(byte_arrival_times.end_s, free_at))

    @property
    def next_free_time_s(self) -> float:
        """Virtual time in seconds at which all messages so far have passed this limiter."""
        return self.free_at_number.update(lambda free_at: free_at)[0]
