"""Quality of a strategy's training: how close it is to synchronous training without compression."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from services.compressors import SumQuality, VectorCompression

LEVELS_BEST_FIRST: tuple[SumQuality, ...] = ("exact", "rounded", "lossy", "unguarded")


class UnguardedPart(NamedTuple):
    """Part of a strategy whose effect on training has no known limit, and how to change the strategy."""

    name: str  # such as "synchrony asp"
    reason: str
    remedy: str


REMOVAL = "remove this candidate"
UNKNOWN_PART = UnguardedPart("this strategy", "its distance from synchronous training has no known limit", REMOVAL)
ASYNCHRONOUS_REASON = "the error of updates that do not wait for all workers has no known limit"


@dataclass(frozen=True)
class TrainingQuality:
    """How close the training of a strategy is to synchronous training without compression.

    Strategies whose workers train alone between two exchanges are lossy at best, whatever the period.
    """

    level: SumQuality
    local_period: int = 1  # steps from one exchange of a parameter to the next; 1: workers never train alone
    unguarded_part: UnguardedPart = UNKNOWN_PART  # of a strategy whose level is unguarded

    def is_worse_than(self, level: SumQuality) -> bool:
        """Return whether this quality is worse than a level."""
        return LEVELS_BEST_FIRST.index(self.level) > LEVELS_BEST_FIRST.index(level)

    def after_local_steps(self, period: int) -> "TrainingQuality":
        """Return the quality of workers that train alone for `period` steps before each exchange of this quality."""
        return replace(self, level=self.level if self.is_worse_than("lossy") else "lossy", local_period=period)


EXACT_QUALITY = TrainingQuality("exact")


def unguarded_quality(part_name: str, reason: str, remedy: str = REMOVAL) -> TrainingQuality:
    """Return the quality of a strategy of which a part has an effect without a known limit."""
    return TrainingQuality("unguarded", unguarded_part=UnguardedPart(part_name, reason, remedy))


def worst_quality(first: TrainingQuality, second: TrainingQuality) -> TrainingQuality:
    """Return the worse of two qualities; the first one if they have the same level."""
    return second if second.is_worse_than(first.level) else first


def quality_of_sums(compressor: VectorCompression) -> TrainingQuality:
    """Return the quality of training in which every step uses the sum of all workers' compressed gradients."""
    if compressor.sum_quality != "unguarded":
        return TrainingQuality(compressor.sum_quality)
    return unguarded_quality(f"compressor {compressor.kind}", *compressor.explain_unguarded_sums())
