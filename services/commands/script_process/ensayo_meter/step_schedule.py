"""Scheduled times of the collectives and of the update in a step, and the matching of collectives to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

CollectiveKind: TypeAlias = tuple[str, int, str]  # operation, bytes and data type

UNSTEADY_STEPS = 2  # DDP arranges its buckets anew after step 0, and the first steps allocate memory


class CollectiveShares(NamedTuple):
    """Shares of a step's compute time before a collective is launched, and before the main thread waits for it."""

    launch: float
    wait: float


@dataclass(frozen=True)
class StepSchedule:
    """Collectives of a step, and the shares of its compute time before each of them, each wait, and the update."""

    collectives: tuple[CollectiveKind, ...]
    launch_shares: tuple[float, ...]
    wait_shares: tuple[float, ...]
    update_share: float
    begins_without_gradient: bool = False  # every step has forward passes without gradient before the others

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "StepSchedule":
        """Return the schedule that a settings file states."""
        kinds = tuple((str(operation), int(size), str(dtype)) for operation, size, dtype in values["collectives"])
        launches, waits = tuple(values["launch_shares"]), tuple(values["wait_shares"])
        return cls(kinds, launches, waits, values["update_share"], values["begins_without_gradient"])

    @property
    def shares(self) -> tuple[CollectiveShares, ...]:
        """Return the shares of each collective."""
        return tuple(map(CollectiveShares, self.launch_shares, self.wait_shares))


class CollectiveMatcher:
    """Finds the scheduled times of the collectives of one step after the other.

    A collective is matched to the first one of the schedule that has the same operation, bytes and data type, and is
    not matched yet. In the first steps, whose collectives may have other sizes, it is matched by its position.
    """

    def __init__(self, schedule: StepSchedule) -> None:
        self._schedule = schedule
        self._shares_by_kind: dict[CollectiveKind, list[CollectiveShares]] = {}
        for kind, share in zip(schedule.collectives, schedule.shares, strict=True):
            self._shares_by_kind.setdefault(kind, []).append(share)
        self._matched_by_kind: dict[CollectiveKind, int] = {}
        self._is_steady = False

    def begin_step(self, number: int) -> None:
        """Forget the collectives of the step before."""
        self._matched_by_kind.clear()
        self._is_steady = number >= UNSTEADY_STEPS

    def match(self, kind: CollectiveKind, position: int) -> CollectiveShares | None:
        """Return the shares of the step's compute before a collective; None if the step has an extra one of this kind.

        Args:
            kind: operation, bytes and data type.
            position: number of collectives before it in this step.
        """
        if not self._is_steady:
            shares, update = self._schedule.shares, self._schedule.update_share
            return shares[position] if position < len(shares) else CollectiveShares(update, update)
        scheduled = self._shares_by_kind.get(kind)
        if scheduled is None:
            return None
        matched = self._matched_by_kind.get(kind, 0)
        if matched == len(scheduled):
            return None
        self._matched_by_kind[kind] = matched + 1
        return scheduled[matched]
