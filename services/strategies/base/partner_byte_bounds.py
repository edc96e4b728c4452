"""Bounds of the bytes that workers send, where workers choose their partners during the run."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple


class ByteRange(NamedTuple):
    """Least and largest number of payload bytes that a worker sends."""

    least: float
    largest: float


class PartnerByteBounds(ABC):
    """Bounds of the bytes that workers send if they choose the workers with which they exchange vectors during a run.

    Bytes per step are then means, and this class bounds the bytes of a whole run.
    """

    @abstractmethod
    def bound_sent_bytes(
        self, step_counts: Sequence[int], seed: int, entry_count: int, entry_bytes: float
    ) -> tuple[ByteRange, ...]:
        """Return the bounds of the payload bytes that each worker sends in a run, by rank.

        Args:
            step_counts: number of steps of each worker, by rank.
            seed: seed of the trial.
            entry_count: entries of the parameter vector.
            entry_bytes: bytes of an entry on the wire.
        """
