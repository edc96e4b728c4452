"""How wrong is a law about sizes that it did not see?

Every number of a band comes from series other than the one that is predicted, each cut short: fit on its smaller sizes,
judged on its larger ones. So nothing is tuned on what the band is later held to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.laws.base import Columns, Fit, Law, Noise
from analysis.statistics.centre import Floats

# Before any fit: run-to-run spread (sd / olympic mean) of a system's ten runs, median over the systems of up to 64
# accelerators in MLPerf Training v4.1.
PILOT = Noise(sd=0.07, dof=10)

ROUGH = 100  # draws: all that is asked of them is a variance

# Equally likely before any backtest. At the largest a law may be off by a factor of e at e times the size: no law.
DRIFTS = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class Miss:
    """One size that was held back."""

    workers: float
    error: float  # ln(predicted / observed)
    variance: float  # of `error`, if the law were true: parameters and noise of the pilot
    distance: float  # ln(size / largest seen)


@dataclass(frozen=True)
class Record:
    """What one series tells about a law."""

    squares: float  # of the residuals of the whole series
    freedom: int  # residuals beyond parameters
    misses: tuple[Miss, ...]


def cut(series: Columns, size: str, largest: float) -> tuple[Columns, Columns]:
    """The part up to `largest`, and the part beyond."""
    within = series[size] <= largest
    return {name: each[within] for name, each in series.items()}, {name: each[~within] for name, each in series.items()}


def backtest(law: Law, series: Columns) -> Record:
    """Every cut that leaves two sizes or more to fit and one or more to predict."""
    size = law.inputs[0]
    whole = law.fit(series, PILOT, ROUGH)
    cuts = [cut(series, size, largest) for largest in np.unique(series[size])[1:-1]]
    misses = [miss for seen, held in cuts if _fits(law, seen) for miss in _misses(law.fit(seen, PILOT, ROUGH), held)]
    return Record(float((whole.residuals**2).sum()), whole.freedom, tuple(misses))


def _fits(law: Law, seen: Columns) -> bool:
    """Whether there are observations for each parameter without a prior."""
    return bool(law.observed(seen).size >= np.isinf(law.prior(seen)[1]).sum())


def _misses(fit: Fit, held: Columns) -> list[Miss]:
    told = fit.law.value(fit.theta, held)
    variance = np.log(fit.samples(held)).var(axis=0)
    rows = zip(held[fit.law.inputs[0]], np.log(told / held[fit.law.tells]), variance, fit.distance(held), strict=True)
    return [Miss(*map(float, row)) for row in rows]


def pooled(records: Sequence[Record]) -> Noise:
    """Noise and drift from what other series told; drift has a posterior, since few series cannot tell that it is zero.

    Errors are normal with variance + drift^2 x distance. Misses of one series depend on each other, so together they
    count as one observation (the mean of their log likelihoods).
    """
    freedom = sum(record.freedom for record in records)
    sd = float(np.sqrt(sum(record.squares for record in records) / freedom)) if freedom else PILOT.sd
    chances = np.exp(sum((_likelihood(record.misses) for record in records if record.misses), np.zeros(DRIFTS.size)))
    below = np.cumsum(chances) / chances.sum()
    return Noise(sd, freedom or PILOT.dof, np.interp(np.linspace(0.01, 0.99, DRIFTS.size), below, DRIFTS))


def _likelihood(misses: Sequence[Miss]) -> Floats:
    """Logarithm, for each of DRIFTS."""
    errors, variances, distances = np.array([[miss.error, miss.variance, miss.distance] for miss in misses]).T
    spread = variances + np.square(DRIFTS)[:, None] * distances
    return np.asarray((-0.5 * (np.log(spread) + errors**2 / spread)).mean(axis=1))


@dataclass(frozen=True)
class Forecast:
    """One observed size beside what a law said of it."""

    series: str
    law: str
    fitted_to: float  # largest size seen
    workers: float
    observed: float
    predicted: float
    low: float  # 90 % band
    high: float

    @property
    def error(self) -> float:
        """Predicted / observed - 1."""
        return self.predicted / self.observed - 1

    @property
    def covered(self) -> bool:
        """Whether the band holds what was observed."""
        return self.low <= self.observed <= self.high


@dataclass(frozen=True)
class Score:
    """How a law did on many sizes."""

    law: str
    points: int
    median: float  # of |error|
    worst: float
    covered: float  # share inside the 90 % band
    width: float  # median of upper / lower end of the band: who covers all by saying nothing is seen here


def score(law: str, forecasts: Sequence[Forecast]) -> Score:
    """Of this law's forecasts among these."""
    mine = [each for each in forecasts if each.law == law]
    errors = np.abs([each.error for each in mine])
    return Score(
        law=law,
        points=len(mine),
        median=float(np.median(errors)),
        worst=float(errors.max()),
        covered=float(np.mean([each.covered for each in mine])),
        width=float(np.median([each.high / each.low for each in mine])),
    )


class Contest:
    """Laws, each under a name, on series that are all cut at the same size; each is fit once."""

    def __init__(self, laws: Mapping[str, Law], series: Mapping[str, Columns], largest: float = 64) -> None:
        """`largest`: what the laws may see."""
        self._laws, self._series, self._largest = laws, series, largest
        self._records: dict[str, dict[str, Record]] = {}
        self._fits: dict[str, dict[str, Fit]] = {}

    def records(self, name: str) -> dict[str, Record]:
        """What each series tells of a law without its held-out sizes; too short ones tell nothing."""
        if name not in self._records:
            law = self._laws[name]
            seen = {at: cut(each, law.inputs[0], self._largest)[0] for at, each in self._series.items()}
            told = {at: each for at, each in seen.items() if each[law.tells].size and _fits(law, each)}
            self._records[name] = {at: backtest(law, each) for at, each in told.items()}
        return self._records[name]

    def fits(self, name: str) -> dict[str, Fit]:
        """One law on what it may see of each series; its noise comes from the others alone.

        Of a series that has nothing up to `largest` all but its largest size is shown; `Fit.sizes` says so.
        """
        if name not in self._fits:
            self._fits[name] = {at: self._fit(name, at) for at in self._series}
        return self._fits[name]

    def _fit(self, name: str, at: str) -> Fit:
        law, records, series = self._laws[name], self.records(name), self._series[at]
        size = law.inputs[0]
        largest = self._largest if at in records else float(np.sort(series[size])[-2])
        noise = pooled([each for other, each in records.items() if other != at])
        return law.fit(cut(series, size, largest)[0], noise)

    def forecasts(self, name: str) -> list[Forecast]:
        """What one law says of every size that it did not see."""
        return [each for at, fit in self.fits(name).items() for each in forecast(name, at, fit, self._series[at])]


def forecast(law: str, name: str, fit: Fit, series: Columns) -> list[Forecast]:
    """Every size of a series beyond those that a law was fit to."""
    largest = fit.sizes[1]
    _, held = cut(series, fit.law.inputs[0], largest)
    if not held[fit.law.tells].size:
        return []
    band = fit.band(held)
    columns: tuple[Floats, ...] = (held[fit.law.inputs[0]], held[fit.law.tells], band.centre, band.low, band.high)
    return [Forecast(name, law, largest, *map(float, row)) for row in zip(*columns, strict=True)]
