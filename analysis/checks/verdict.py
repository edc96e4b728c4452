"""Whether a trial may be believed, and why not."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """From best to worst."""

    VALID = "valid"
    DEGRADED = "degraded"
    INVALID = "invalid"


@dataclass(frozen=True)
class Verdict:
    """What one check found; the reason says what was measured, also when all is well."""

    level: Level
    reason: str


def valid(reason: str) -> Verdict:
    """Nothing to object to."""
    return Verdict(Level.VALID, reason)


def degraded(reason: str) -> Verdict:
    """Usable with care: something could not be verified or came close to a limit."""
    return Verdict(Level.DEGRADED, reason)


def invalid(reason: str) -> Verdict:
    """Not to be believed."""
    return Verdict(Level.INVALID, reason)


def worst_level(levels: Iterable[Level]) -> Level:
    """The worst of the levels; valid when there are none."""
    order = list(Level)
    return max(levels, key=order.index, default=Level.VALID)


def worst(verdicts: Iterable[Verdict]) -> Level:
    """The worst level among the verdicts."""
    return worst_level(verdict.level for verdict in verdicts)
