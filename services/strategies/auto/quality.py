"""Quality guard of an automatic choice: how close the training of a candidate is to synchronous training."""

from typing import Literal, TypeAlias

from services.compressors import SumQuality
from services.strategies.all_reduce import AllReduce
from services.strategies.diloco import DiLoCo
from services.strategies.local_sgd import LocalSgd
from services.strategies.parameter_server import ParameterServer

CandidateStrategy: TypeAlias = AllReduce | ParameterServer | LocalSgd | DiLoCo

# What a guard permits:
# exact    gradients of all workers are summed in every step, without compression
# rounded  also with payloads of 16 bits
# lossy    also compressors whose quality is lossy, and local steps up to a longest period
QualityGuard: TypeAlias = Literal["exact", "rounded", "lossy"]
QUALITIES_BEST_FIRST: tuple[SumQuality, ...] = ("exact", "rounded", "lossy", "unguarded")


def candidate_quality(candidate: CandidateStrategy) -> SumQuality:
    """Return how close the training of a candidate is to synchronous training without compression.

    Workers that train alone between two exchanges are lossy, whatever the period. Servers that do not wait for the
    gradients of all workers are unguarded: no bound on the error of their updates is known.
    """
    match candidate:
        case AllReduce():
            return candidate.compress.sum_quality
        case ParameterServer():
            if candidate.synchrony.kind != "bsp":
                return "unguarded"
            return worst_quality(candidate.compress.sum_quality, candidate.compress_replies.sum_quality)
        case LocalSgd() | DiLoCo():
            return worst_quality("lossy", candidate.compress.sum_quality)


def worst_quality(*qualities: SumQuality) -> SumQuality:
    """Return the worst of several qualities."""
    return max(qualities, key=QUALITIES_BEST_FIRST.index)


def explain_unpermitted(candidate: CandidateStrategy, guard: QualityGuard, max_period: int) -> str:
    """Return why a guard does not permit a candidate, with the remedy; empty if the guard permits it."""
    quality = candidate_quality(candidate)
    if quality == "unguarded":
        return f"{_explain_unguarded(candidate)}, or declare this {candidate.kind} as a strategy of its own"
    if QUALITIES_BEST_FIRST.index(quality) > QUALITIES_BEST_FIRST.index(guard):
        return (
            f"the quality of this {candidate.kind} is {quality}, but quality: {guard} does not permit it; write "
            f"quality: {quality}, or remove this candidate"
        )
    if isinstance(candidate, LocalSgd | DiLoCo) and candidate.period > max_period:
        return (
            f"its period ({candidate.period}) is longer than max_period ({max_period}); write max_period: "
            f"{candidate.period}, or use a shorter period"
        )
    return ""


def _explain_unguarded(candidate: CandidateStrategy) -> str:
    """Return why no guard permits a candidate, and how to change it."""
    if isinstance(candidate, ParameterServer):
        if candidate.synchrony.kind != "bsp":
            return (
                f"no value of quality permits synchrony {candidate.synchrony.kind}, because the error of updates that "
                "do not wait for all workers has no known limit; write synchrony: {kind: bsp}"
            )
        if candidate.compress_replies.sum_quality == "unguarded":
            replies = candidate.compress_replies
            why = f"no value of quality permits compress_replies {replies.kind}"
            return f"{why}, because {replies.explain_unguarded_sums().reason}; use fp16 or int8"
    reason, remedy = candidate.compress.explain_unguarded_sums()
    return f"no value of quality permits compressor {candidate.compress.kind}, because {reason}; {remedy}"
