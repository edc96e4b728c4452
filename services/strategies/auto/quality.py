"""Quality guard of an automatic choice: how close the training of a candidate is to synchronous training."""

from typing import Literal, TypeAlias

from services.strategies.base import SinglePhaseStrategy

# What a guard permits:
# exact    gradients of all workers are summed in every step, without compression
# rounded  also with payloads of 16 bits
# lossy    also compressors whose quality is lossy, and local steps up to a longest period
QualityGuard: TypeAlias = Literal["exact", "rounded", "lossy"]


def explain_unpermitted(candidate: SinglePhaseStrategy, guard: QualityGuard, max_period: int) -> str:
    """Return why a guard does not permit a candidate, with the remedy; empty if the guard permits it."""
    quality = candidate.describe_quality()
    if quality.level == "unguarded":
        name, reason, remedy = quality.unguarded_part
        why = f"no value of quality permits {name}, because {reason}"
        return f"{why}; {remedy}, or declare this {candidate.kind} as a separate strategy"
    if quality.is_worse_than(guard):
        return (
            f"the quality of this {candidate.kind} is {quality.level}, but quality: {guard} does not permit it; write "
            f"quality: {quality.level}, or remove this candidate"
        )
    if quality.local_period > max_period:
        return (
            f"its period ({quality.local_period}) is longer than max_period ({max_period}); write max_period: "
            f"{quality.local_period}, or use a shorter period"
        )
    return ""
