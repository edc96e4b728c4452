"""What do laws that saw sizes up to 64 say of 512 and more? Computed once for all chapters that ask."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from analysis.laws import (
    AmdahlLaw,
    BestBatchLaw,
    CompositeLaw,
    GustafsonLaw,
    LawFit,
    LogarithmicLaw,
    ResidualNoise,
    ScalingLaw,
    UniversalScalabilityLaw,
)
from analysis.laws.backtest import (
    PILOT_NOISE,
    BacktestRecord,
    ForecastScore,
    LawComparison,
    LawForecast,
    forecast_held_out,
    score_forecasts,
)
from analysis.mlperf.series import Series

SHOWN = 64  # accelerators up to which laws may look
ASKED = 512  # from which on they are judged
ENOUGH = 3  # sizes that a law sees: as many as classic laws have parameters

OURS_UNKNOWN, OURS_KNOWN, OURS_PLANNED = "best batch", "parts, batch known", "parts, batch chosen"
LAWS: dict[str, ScalingLaw] = {
    "Amdahl": AmdahlLaw(),
    "Gustafson": GustafsonLaw(),
    "+ log N": LogarithmicLaw(),
    "USL": UniversalScalabilityLaw(),
    OURS_UNKNOWN: BestBatchLaw(),
    OURS_KNOWN: CompositeLaw(),
    OURS_PLANNED: CompositeLaw(batch="best"),
}
OURS = (OURS_UNKNOWN, OURS_KNOWN, OURS_PLANNED)


@dataclass(frozen=True)
class Trial:
    """Laws on series."""

    series: tuple[Series, ...]  # those with sizes enough
    fits: Mapping[str, Mapping[str, LawFit]]  # by law and series
    forecasts: tuple[LawForecast, ...]  # every size beyond what a law saw
    records: Mapping[str, Mapping[str, BacktestRecord]]  # backtests up to SHOWN, by law and series

    @property
    def judged(self) -> tuple[LawForecast, ...]:
        """Forecasts of sizes from ASKED on by laws that saw none beyond SHOWN."""
        return tuple(filter(counts, self.forecasts))

    @property
    def scores(self) -> tuple[ForecastScore, ...]:
        """One per law, over what is judged; none where nothing is."""
        return tuple(score_forecasts(law, self.judged) for law in self.fits) if self.judged else ()

    def of(self, law: str, series: str) -> tuple[LawForecast, ...]:
        """One law's forecasts of one series."""
        return tuple(each for each in self.forecasts if (each.law, each.series) == (law, series))

    def covered_without_drift(self, law: str) -> float:
        """The share inside 90 % bands of a law that is taken to go astray nowhere: the rule that bands had first."""
        columns = {each.benchmark: each.columns for each in self.series}
        rigid = {
            name: replace(fit, drift_sd_draws=np.zeros_like(fit.drift_sd_draws)) for name, fit in self.fits[law].items()
        }
        told = [each for name, fit in rigid.items() for each in forecast_held_out(law, name, fit, columns[name])]
        return float(np.mean([each.is_covered for each in told if counts(each)]))


def counts(each: LawForecast) -> bool:
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
    contest = LawComparison({law: LAWS[law] for law in names}, {each.benchmark: each.columns for each in kept}, SHOWN)
    return Trial(
        series=kept,
        fits={law: contest.fits_by_series(law) for law in names},
        forecasts=tuple(each for law in names for each in contest.forecasts(law)),
        records={law: contest.backtest_records(law) for law in names},
    )


@cache
def described(series: tuple[Series, ...], law: ScalingLaw) -> dict[str, LawFit]:
    """A law on every size of each series, to say what is, not what will be; noise is pooled over the series."""
    noise = ResidualNoise(sd=0.1, degrees_of_freedom=1)
    first = [law.fit(each.columns, noise) for each in series]
    freedom = sum(fit.degrees_of_freedom for fit in first)
    squares = sum(float((fit.log_residuals**2).sum()) for fit in first)
    pooled = ResidualNoise(float(np.sqrt(squares / freedom)), freedom) if freedom else PILOT_NOISE
    return {each.benchmark: law.fit(each.columns, pooled) for each in series}
