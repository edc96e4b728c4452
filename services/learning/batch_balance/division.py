"""Division of a batch into shares that are proportional to speeds, within limits."""

from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache

from services.learning.data_order import RankWeights

MIN_SHARE = 1  # samples of a whole batch


@lru_cache(maxsize=16)  # the ranks of one process need the same shares
def ideal_shares(batch: int, speeds: RankWeights, max_share: int | None = None) -> tuple[Fraction, ...]:
    """Return shares of a batch in proportion to speeds, not rounded to whole samples.

    A share is λ·speed, but at least one sample and at most `max_share`; λ is such that the sum is the batch. So all
    workers whose shares are not at a limit finish at the same time.

    Args:
        batch: samples of all workers together, at least one per worker.
        speeds: positive speeds by rank, in any unit.
        max_share: largest share; None: no limit. All workers together can process the batch.

    Raises:
        ValueError: the batch is too small or too large for these limits.
    """
    limit = batch if max_share is None else min(max_share, batch)
    if not MIN_SHARE * len(speeds) <= batch <= limit * len(speeds):
        raise ValueError(f"{batch} samples can't be divided into {len(speeds)} shares of 1 to {limit} samples")
    exact_speeds = [Fraction(speed) for speed in speeds]

    def shares_at(factor: Fraction) -> list[Fraction]:
        return [min(max(factor * speed, Fraction(MIN_SHARE)), Fraction(limit)) for speed in exact_speeds]

    # The sum grows linearly between the factors at which a share reaches or leaves a limit.
    bounds = sorted({Fraction(share) / speed for speed in exact_speeds for share in (MIN_SHARE, limit)})
    index = bisect_left(bounds, Fraction(batch), key=lambda factor: sum(shares_at(factor), Fraction(0)))
    upper = shares_at(bounds[index])
    if sum(upper) == batch:
        return tuple(upper)
    lower = shares_at(bounds[index - 1])
    lower_sum = sum(lower, Fraction(0))
    part = (batch - lower_sum) / (sum(upper, Fraction(0)) - lower_sum)
    return tuple(low + part * (high - low) for low, high in zip(lower, upper, strict=True))


def divide_batch(batch: int, speeds: RankWeights, max_share: int | None = None) -> tuple[int, ...]:
    """Return shares of a batch in proportion to speeds, in whole samples.

    Ideal shares are rounded by the method of the largest remainder; lower ranks win ties. The arguments and errors are
    those of `ideal_shares`.
    """
    ideal = ideal_shares(batch, speeds, max_share)
    remaining = batch - sum(map(int, ideal))
    rounded_up = set(sorted(range(len(ideal)), key=lambda rank: int(ideal[rank]) - ideal[rank])[:remaining])
    return tuple(int(share) + (rank in rounded_up) for rank, share in enumerate(ideal))
