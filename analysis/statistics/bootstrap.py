"""How sure is a number that a few runs gave?

Efron's bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993). Intervals of one number are
bias-corrected and accelerated (BCa, their chapter 14), which a skewed statistic such as a ratio needs. Where BCa has no
answer, because runs do not differ, none of them matters by itself or one of them missed its target (infinite), they are
ranks of resampled statistics.
Tests hold BCa to SciPy's.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from scipy.special import ndtr, ndtri  # not scipy.stats: every command would wait for its import

from analysis.statistics.centre import Floats, olympic_mean

DRAWS = 2000  # enough for the 2.5 % and 97.5 % points to settle to about 2 % of the interval's width
LEVEL = 95  # percent
ROUNDING = 1e-12  # of a statistic

Centre = Callable[[Floats], Floats]  # along the last axis
Interval = tuple[float, float]
Samples = tuple[Floats, ...]
Statistic = Callable[..., Floats]  # of samples, along their last axis


def joint(samples: Sequence[Floats], *, paired: bool, seed: int = 0) -> Floats:
    """Olympic means of several samples resampled together, shape (DRAWS, samples).

    Paired: samples have one value per seed in the same order, and a draw picks seeds, the same for all of them. What a
    lucky seed gives to every sample then cancels in their ratios.
    """
    generator = np.random.default_rng(seed)
    picks = [generator.integers(0, each.size, size=(DRAWS, each.size)) for each in (samples[:1] if paired else samples)]
    picks = picks * len(samples) if paired else picks
    return np.stack([olympic_mean(each[pick]) for each, pick in zip(samples, picks, strict=True)], axis=1)


def interval(draws: Floats, level: float = LEVEL) -> Interval:
    """The central `level` percent of the draws; by rank, so that an end may be infinite."""
    tails = [(100 - level) / 2, (100 + level) / 2]
    if np.isfinite(draws).all():
        low, high = np.percentile(draws, tails)
        return float(low), float(high)
    return float(np.percentile(draws, tails[0], method="lower")), float(np.percentile(draws, tails[1], method="higher"))


def centre_interval(values: Floats, centre: Centre = olympic_mean) -> Interval | None:
    """95 % of a centre; None for a single run, which says nothing about others."""
    if values.size == 1:
        return None
    return _bca((values,), centre, paired=False)


def ratio_interval(above: Floats, below: Floats, *, paired: bool = False) -> Interval | None:
    """95 % of olympic mean (above) / olympic mean (below), both resampled: dividing means would hide either's spread.

    Paired as in `joint`. A side of one run is taken as exact; None where both are.
    """
    if above.size == below.size == 1:
        return None
    if below.size == 1:
        return _bca((above,), lambda x: olympic_mean(x) / below[0], paired=False)
    if above.size == 1:
        return _bca((below,), lambda x: above[0] / olympic_mean(x), paired=False)
    return _bca((above, below), lambda x, y: olympic_mean(x) / olympic_mean(y), paired=paired)


def _bca(samples: Samples, statistic: Statistic, *, paired: bool) -> Interval:
    """The bias-corrected and accelerated interval where it is defined, else by rank."""
    if not all(np.isfinite(sample).all() and np.ptp(sample) for sample in samples):
        return _by_rank(samples, statistic, paired=paired)
    with np.errstate(all="ignore"):
        draws = statistic(*_resampled(samples, paired=paired))
        shares = _bca_shares(samples, statistic, draws, paired=paired)
    if not (np.isfinite(shares).all() and np.isfinite(draws).all()):
        return interval(draws)
    low, high = (_quantile(np.sort(draws), share) for share in shares)
    return low, high


def _bca_shares(samples: Samples, statistic: Statistic, draws: Floats, *, paired: bool) -> Floats:
    """Which shares of the draws lie below either end (Efron and Tibshirani, equations 14.10 and, for many, 15.36)."""
    centre = statistic(*samples)
    bias = ndtri((np.count_nonzero(draws < centre) + np.count_nonzero(draws <= centre)) / (2 * draws.size))
    left_out = [range(len(samples))] if paired else [[place] for place in range(len(samples))]
    influences = [_influences(samples, statistic, together) for together in left_out]
    cubes = sum((each**3).sum() / each.size**3 for each in influences)
    squares = sum((each**2).sum() / each.size**2 for each in influences)
    if squares < (ROUNDING * centre) ** 2:  # no run matters by itself: what is left of them is noise
        return np.full(2, np.nan)
    skew = 1 / 6 * cubes / squares**1.5  # the acceleration
    tail = ndtri((1 - LEVEL / 100) / 2)
    return np.array([ndtr(bias + (bias + z) / (1 - skew * (bias + z))) for z in (tail, -tail)])


def _influences(samples: Samples, statistic: Statistic, together: Collection[int]) -> Floats:
    """What each run does to the statistic, shape (runs,): by leaving it out of the samples that are named."""
    count = samples[min(together)].size
    others = np.nonzero(~np.eye(count, dtype=bool))[1].reshape(count, count - 1)
    without = [
        each[others] if place in together else np.broadcast_to(each, (count, each.size))
        for place, each in enumerate(samples)
    ]
    values = statistic(*without)
    return np.asarray((count - 1) * (values.mean() - values))


def _quantile(ranked: Floats, share: float) -> float:
    """Between two ranks by a line (Hyndman and Fan 1996, definition 7)."""
    rank, part = divmod(share * ranked.size + (1 - share) - 1, 1)
    above = min(int(rank) + 1, ranked.size - 1)
    return float((1 - part) * ranked[int(rank)] + part * ranked[above])


def _resampled(samples: Samples, *, paired: bool) -> list[Floats]:
    """Each sample drawn anew, shape (DRAWS, runs); paired ones by the same picks."""
    generator = np.random.default_rng(0)
    picks = [generator.integers(0, each.size, size=(DRAWS, each.size)) for each in samples]
    picks = picks[:1] * len(samples) if paired else picks
    return [each[pick] for each, pick in zip(samples, picks, strict=True)]


def _by_rank(samples: Samples, statistic: Statistic, *, paired: bool) -> Interval:
    with np.errstate(invalid="ignore"):  # both sides missed: the ratio is unknown, and takes the highest rank
        ratios = np.nan_to_num(statistic(*_resampled(samples, paired=paired)), nan=np.inf, posinf=np.inf)
    return interval(ratios)
