"""Verdict of a check on a trial: `valid`, `degraded` or `invalid`.

A verdict has a reason, and says what the user can do.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

# What a user can do about an invalid trial, by cause. A verdict has a remedy where its check knows one.
SLOW_HOST_REMEDY = (
    "This host is too slow for the declared cluster: declare slower workers, raise the dilation, or use the engine "
    "simulated."
)
WRONG_LINKS_REMEDY = (
    "The links differed from their declaration: raise the dilation, declare lower rates or longer delays, or use the "
    "engine simulated."
)
NOT_ENFORCED_REMEDY = (
    "Not all declared properties of links were enforced: `ensayo doctor` shows which mechanisms each engine has on "
    "this host."
)
CHANGED_LINKS_REMEDY = (
    "The links were changed during the run: run the scenario again on a host where no other program manages them."
)


class VerdictLevel(StrEnum):
    """Level of a verdict, which states whether a trial can be trusted.

    The levels are `valid`, `degraded` and `invalid`, from best to worst.
    """

    VALID = "valid"
    DEGRADED = "degraded"
    INVALID = "invalid"


@dataclass(frozen=True)
class CheckVerdict:
    """Verdict of one check on a trial: its level and its reason.

    The reason states what was measured, even if the level is `valid`.
    """

    level: VerdictLevel
    reason: str
    remedy: str = ""  # empty if the reason suffices
    possible_disturbance: str = ""  # what was measured, if other load on this host may be the cause; else empty


def valid_verdict(reason: str) -> CheckVerdict:
    """Return the verdict `valid`, which states that a check found no problem."""
    return CheckVerdict(VerdictLevel.VALID, reason)


def degraded_verdict(reason: str) -> CheckVerdict:
    """Return the verdict `degraded`, which states that a trial's times may be inaccurate.

    Either a property was not verified, or the host may have distorted the times.
    """
    return CheckVerdict(VerdictLevel.DEGRADED, reason)


def invalid_verdict(reason: str, remedy: str = "") -> CheckVerdict:
    """Return the verdict `invalid`, which states that the times of the trial must not be used."""
    return CheckVerdict(VerdictLevel.INVALID, reason, remedy)


def disturbed_verdict(level: VerdictLevel, measured: str, advice: str = "", remedy: str = "") -> CheckVerdict:
    """Return a verdict on a deviation that other load on this host may have caused.

    A trial with such a verdict is repeated.

    Args:
        level: `degraded` or `invalid`.
        measured: what was measured, with its limit.
        advice: what the user can do; it follows the measured value in the reason.
        remedy: what the user can do about several trials with the same cause.
    """
    reason = f"{measured}; {advice}" if advice else measured
    return CheckVerdict(level, reason, remedy, possible_disturbance=measured)


def worst_level(verdict_levels: Iterable[VerdictLevel]) -> VerdictLevel:
    """Return the worst of several verdict levels.

    Return `valid` if there are no levels.
    """
    order = list(VerdictLevel)
    return max(verdict_levels, key=order.index, default=VerdictLevel.VALID)


def worst_verdict_level(check_verdicts: Iterable[CheckVerdict]) -> VerdictLevel:
    """Return the worst level among the verdicts of several checks.

    Return `valid` if there are no verdicts.
    """
    return worst_level(verdict.level for verdict in check_verdicts)
