"""Change of the workers of a trial, and its rules for values that all workers have and for residuals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from services.schema.arrays import Vector

ValueT = TypeVar("ValueT")
NumberT = TypeVar("NumberT", int, float)


@dataclass(frozen=True)
class WorkerChange:
    """Change of the workers of a trial: which of the old workers continue, and with which new ranks."""

    old_ranks: tuple[int | None, ...]  # by new rank: old rank of the worker that continues; None: a new worker
    old_count: int  # of workers before the change
    # Weight of a worker's vectors in the updates of servers, by rank; empty: the same for all, before and after.
    weights_before: tuple[float, ...] = ()
    weights_after: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        continuing = [rank for rank in self.old_ranks if rank is not None]
        if not continuing or sorted(set(continuing) & set(range(self.old_count))) != sorted(continuing):
            raise ValueError(f"{self.old_ranks} must have different ranks of {self.old_count} workers, at least one")
        expected = (self.old_count, len(self.old_ranks)) if self.weights_before or self.weights_after else (0, 0)
        if (len(self.weights_before), len(self.weights_after)) != expected:
            raise ValueError("each old worker needs a weight before the change, and each new worker one afterwards")

    @property
    def first(self) -> int:
        """Old rank of the first continuing worker, which takes over from the removed ones."""
        return next(rank for rank in self.old_ranks if rank is not None)

    @property
    def removed(self) -> tuple[int, ...]:
        """Old ranks of the workers that do not continue."""
        return tuple(rank for rank in range(self.old_count) if rank not in self.old_ranks)

    def list_sources(self, old_rank: int) -> tuple[int, ...]:
        """Return the old ranks whose sums a continuing worker has: its own; for the first, those of the removed too."""
        return (old_rank, *self.removed) if old_rank == self.first else (old_rank,)

    def without_weights(self) -> "WorkerChange":
        """Return this change for vectors to which weights have been applied."""
        return replace(self, weights_before=(), weights_after=())

    def copy_values(self, values: Sequence[ValueT]) -> list[ValueT]:
        """Return values by new rank, given those by old rank: a new worker has that of the first continuing one."""
        return [values[self.first if rank is None else rank] for rank in self.old_ranks]

    def add_residuals(self, residuals: Sequence[Vector | None]) -> list[Vector | None]:
        """Return residuals by new rank, given those by old rank; None: zero."""
        return [self._add_sources(residuals, new, old) for new, old in enumerate(self.old_ranks)]

    def add_counts(self, counts: Sequence[NumberT]) -> list[NumberT]:
        """Return counts or sums by new rank, given those by old rank; a new worker has none."""
        zero = type(counts[0])(0)
        sources = (() if old is None else self.list_sources(old) for old in self.old_ranks)
        return [sum((counts[rank] for rank in ranks), zero) for ranks in sources]

    def _add_sources(self, residuals: Sequence[Vector | None], new: int, old: int | None) -> Vector | None:
        """Return the residual of a new rank."""
        sources = () if old is None else self.list_sources(old)
        parts = [self._rescale(residuals[rank], rank, new) for rank in sources if residuals[rank] is not None]
        if not parts:
            return None
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _rescale(self, residual: Vector, old: int, new: int) -> Vector:
        """Return a residual times its old weight, divided by the weight of the worker that gets it."""
        if not self.weights_before:
            return residual
        return residual * residual.dtype.type(self.weights_before[old] / self.weights_after[new])
