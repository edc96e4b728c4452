"""What do laws that saw sizes up to 64 say of 512 and more? Computed once for all chapters that ask."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from analysis.laws import Amdahl, BestBatch, Fit, Gustafson, Law, LogN, Noise, Parts, Usl
from analysis.laws.backtest import PILOT, Contest, Forecast, Record, Score, forecast, score
from analysis.mlperf.series import Series

SHOWN = 64  # accelerators up to which laws may look
ASKED = 512  # from which on they are judged
ENOUGH = 3  # sizes that a law sees: as many as classic laws have parameters

OURS_UNKNOWN, OURS_KNOWN, OURS_PLANNED = "best batch", "parts, batch known", "parts, batch chosen"
LAWS: dict[str, Law] = {
    "Amdahl": Amdahl(),
    "Gustafson": Gustafson(),
    "+ log N": LogN(),
    "USL": Usl(),
    OURS_UNKNOWN: BestBatch(),
    OURS_KNOWN: Parts(),
    OURS_PLANNED: Parts(batch="best"),
}
OURS = (OURS_UNKNOWN, OURS_KNOWN, OURS_PLANNED)


@dataclass(frozen=True)
class Trial:
    """Laws on series."""

    series: tuple[Series, ...]  # those with sizes enough
    fits: Mapping[str, Mapping[str, Fit]]  # by law and series
    forecasts: tuple[Forecast, ...]  # every size beyond what a law saw
    records: Mapping[str, Mapping[str, Record]]  # backtests up to SHOWN, by law and series

    @property
    def judged(self) -> tuple[Forecast, ...]:
        """Forecasts of sizes from ASKED on by laws that saw none beyond SHOWN."""
        return tuple(filter(counts, self.forecasts))

    @property
    def scores(self) -> tuple[Score, ...]:
        """One per law, over what is judged; none where nothing is."""
        return tuple(score(law, self.judged) for law in self.fits) if self.judged else ()

    def of(self, law: str, series: str) -> tuple[Forecast, ...]:
        """One law's forecasts of one series."""
        return tuple(each for each in self.forecasts if (each.law, each.series) == (law, series))

    def covered_without_drift(self, law: str) -> float:
        """The share inside 90 % bands of a law that is taken to go astray nowhere: the rule that bands had first."""
        columns = {each.benchmark: each.columns for each in self.series}
        rigid = {name: replace(fit, drifts=np.zeros_like(fit.drifts)) for name, fit in self.fits[law].items()}
        told = [each for name, fit in rigid.items() for each in forecast(law, name, fit, columns[name])]
        return float(np.mean([each.covered for each in told if counts(each)]))


def counts(each: Forecast) -> bool:
    """Whether laws are judged by it."""
    return each.fitted_to <= SHOWN and each.workers >= ASKED


def enough(series: Series) -> bool:
    """Whether ENOUGH sizes lie up to SHOWN, or, of a series that begins beyond, before its largest."""
    seen = [count for count in series.counts if count <= SHOWN] or series.counts[:-1]
    return len(seen) >= ENOUGH


@cache
def tried(series: tuple[Series, ...], names: tuple[str, ...] = tuple(LAWS)) -> Trial:
    """Fits and judges laws, on series with sizes enough."""
    kept = tuple(filter(enough, series))
    contest = Contest({law: LAWS[law] for law in names}, {each.benchmark: each.columns for each in kept}, SHOWN)
    return Trial(
        series=kept,
        fits={law: contest.fits(law) for law in names},
        forecasts=tuple(each for law in names for each in contest.forecasts(law)),
        records={law: contest.records(law) for law in names},
    )


@cache
def described(series: tuple[Series, ...], law: Law) -> dict[str, Fit]:
    """A law on every size of each series, to say what is, not what will be; noise is pooled over the series."""
    noise = Noise(sd=0.1, dof=1)
    first = [law.fit(each.columns, noise) for each in series]
    freedom = sum(fit.freedom for fit in first)
    squares = sum(float((fit.residuals**2).sum()) for fit in first)
    pooled = Noise(float(np.sqrt(squares / freedom)), freedom) if freedom else PILOT
    return {each.benchmark: law.fit(each.columns, pooled) for each in series}
