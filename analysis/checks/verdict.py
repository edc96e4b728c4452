"""Whether a trial may be believed, and why not."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

# What a user can do about an invalid trial, by what is lacking; a check names one where it knows.
SLOWER = "This host could not keep up: declare slower workers, raise dilation, or take engine simulated."
LINKS = "Links were not as declared: raise dilation, declare lower rates or longer delays, or take engine simulated."
ENFORCER = "Not all that is declared of links was enforced: `ensayo doctor` shows what each engine has here."
UNDISTURBED = "Something changed links during the run: run it again where nothing else manages them."


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
    remedy: str = ""  # empty where the reason says it all


def valid(reason: str) -> Verdict:
    """Nothing to object to."""
    return Verdict(Level.VALID, reason)


def degraded(reason: str) -> Verdict:
    """Usable with care: something could not be verified or came close to a limit."""
    return Verdict(Level.DEGRADED, reason)


def invalid(reason: str, remedy: str = "") -> Verdict:
    """Not to be believed."""
    return Verdict(Level.INVALID, reason, remedy)


def worst_level(levels: Iterable[Level]) -> Level:
    """The worst of the levels; valid when there are none."""
    order = list(Level)
    return max(levels, key=order.index, default=Level.VALID)


def worst(verdicts: Iterable[Verdict]) -> Level:
    """The worst level among the verdicts."""
    return worst_level(verdict.level for verdict in verdicts)
