"""Is one strategy faster than another, over the same seeds?

A seed fixes initial parameters and the order of data, so what it gives to both cancels in their ratio.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from analysis.statistics.bootstrap import Interval, ratio_interval
from analysis.statistics.centre import Floats, olympic_mean
from analysis.statistics.rounding import rounding

EXACT = 14  # pairs up to which every pattern of signs is tried: 2^14 are a moment


@dataclass(frozen=True)
class Comparison:
    """How many times as long `theirs` take as `ours`."""

    ratio: float  # of olympic means; above 1 means that ours are faster
    interval: Interval | None  # 95 %
    p_value: float  # two-sided, of no difference; `holm` adjusts many
    pairs: int
    missed: tuple[int, int]  # runs of ours and of theirs that never reached the target


def compare(ours: Floats, theirs: Floats, steps: tuple[float, float] = (0.0, 0.0)) -> Comparison:
    """Times by seed, in the same order; a run that missed is infinite and stays in.

    p: Student's t of log ratios where all are finite, for times vary by factors; where a run missed, signed ranks
    (Wilcoxon 1945) with infinity as the largest, which with fewer than six pairs can never fall under 0.05.
    `steps`: what either side's times are rounded up to, the time between two evaluations; a mean ratio is at least as
    uncertain as that leaves it.

    Raises:
        ValueError: not the same number of runs, or a time that is not positive.
    """
    if ours.size != theirs.size:
        raise ValueError(f"{ours.size} runs cannot be paired with {theirs.size}")
    if not (np.minimum(ours, theirs) > 0).all():
        raise ValueError("times must be positive")
    with np.errstate(invalid="ignore"):
        ratio = float(olympic_mean(theirs) / olympic_mean(ours))
    logs = _log_ratios(ours, theirs)
    finite = bool(np.isfinite([ours, theirs]).all())
    chance = student(logs, _rounding(ours, steps[0]) + _rounding(theirs, steps[1])) if finite else _signed_ranks(logs)
    missed = (int(np.isinf(ours).sum()), int(np.isinf(theirs).sum()))
    return Comparison(ratio, ratio_interval(theirs, ours, paired=True), chance, ours.size, missed)


def _log_ratios(ours: Floats, theirs: Floats) -> Floats:
    """Zero where both missed: that seed tells nothing apart."""
    both = np.isinf(ours) & np.isinf(theirs)
    with np.errstate(invalid="ignore"):
        return np.where(both, 0.0, np.log(theirs) - np.log(ours))


def _rounding(times: Floats, step: float) -> float:
    """As a variance of the mean logarithm."""
    return rounding(times, step) / float(times.mean()) ** 2


def student(gaps: Floats, least: float = 0.0) -> float:
    """Student's t, two-sided: the chance of gaps, one per pair, whose mean is as far from zero.

    One where nothing was repeated; the mean varies by `least`, and where nothing is rounded equal runs are exact.
    """
    if gaps.size <= 1:
        return 1.0
    error = np.sqrt(max(float(gaps.var(ddof=1)) / gaps.size, least))
    if error == 0:
        return float(gaps[0] == 0)
    return float(2 * stdtr(gaps.size - 1, -abs(gaps.mean()) / error))


def _signed_ranks(logs: Floats) -> float:
    """The share of sign patterns whose ranks lean at least as far; all of them, or of 2^EXACT drawn ones."""
    ranks = _ranks(np.abs(logs)) * (logs != 0)
    if logs.size <= EXACT:
        signs = 1 - 2 * ((np.arange(2**logs.size)[:, None] >> np.arange(logs.size)) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1, 1], size=(2**EXACT, logs.size))
    leans = np.abs(signs @ ranks)
    return float(np.mean(leans >= abs(np.sign(logs) @ ranks)))


def _ranks(values: Floats) -> Floats:
    """From 1, ties share their mean rank."""
    return np.array([(values < each).sum() + ((values == each).sum() + 1) / 2 for each in values])
