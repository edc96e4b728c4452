"""Forecasts of training times on large systems by scaling laws fitted to small systems.

The laws are fitted to systems of up to 64 accelerators and scored on systems of 512 or more. Results are cached,
because several chapters use them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from analysis import laws
from analysis.laws import backtest
from analysis.mlperf.series import ScalingSeries

MAX_FITTED_ACCELERATORS = 64  # largest size that laws are fitted to
MIN_SCORED_ACCELERATORS = 512  # smallest size at which forecasts are judged
MIN_FITTED_SIZES = 3  # per series: as many as classic laws have parameters

BEST_BATCH, PARTS_KNOWN_BATCH, PARTS_CHOSEN_BATCH = "best batch", "parts, batch known", "parts, batch chosen"
LAWS: dict[str, laws.ScalingLaw] = {
    "Amdahl": laws.AmdahlLaw(),
    "Gustafson": laws.GustafsonLaw(),
    "+ log N": laws.LogarithmicLaw(),
    "USL": laws.UniversalScalabilityLaw(),
    BEST_BATCH: laws.BestBatchTrainingTimeLaw(),
    PARTS_KNOWN_BATCH: laws.TrainingTimeLaw(),
    PARTS_CHOSEN_BATCH: laws.TrainingTimeLaw(batch="best"),
}
OWN_LAWS = (BEST_BATCH, PARTS_KNOWN_BATCH, PARTS_CHOSEN_BATCH)


@dataclass(frozen=True)
class LawEvaluation:
    """Fits, forecasts and backtests of scaling laws on all workloads with results at enough system sizes."""

    series: tuple[ScalingSeries, ...]  # those with at least MIN_FITTED_SIZES sizes to fit
    fits: Mapping[str, Mapping[str, laws.LawFit]]  # by law and series
    forecasts: tuple[backtest.LawForecast, ...]  # one for each law and size above the fitted ones
    backtests: Mapping[str, Mapping[str, backtest.LawBacktestResult]]  # backtests up to SHOWN, by law and series

    @property
    def large_system_forecasts(self) -> tuple[backtest.LawForecast, ...]:
        """Forecasts for large systems (512 accelerators or more) by laws fitted to small systems (64 or fewer)."""
        return tuple(filter(predicts_large_from_small, self.forecasts))

    @property
    def forecast_scores_of_laws(self) -> tuple[backtest.ForecastScore, ...]:
        """Score of each scaling law over its forecasts for large systems.

        The result is empty without such forecasts.
        """
        scored = self.large_system_forecasts
        return tuple(backtest.score_forecasts(law, scored) for law in self.fits) if scored else ()

    def forecasts_of(self, law_name: str, benchmark: str) -> tuple[backtest.LawForecast, ...]:
        """Return the training times that one scaling law forecasts for one MLPerf workload."""
        return tuple(each for each in self.forecasts if (each.law, each.series) == (law_name, benchmark))

    def compute_band_coverage_without_law_drift(self, law_name: str) -> float:
        """Return the share of large systems inside a scaling law's 90 % bands without drift.

        Drift is the error of a law beyond the fitted sizes. Earlier versions of Ensayo computed bands without drift.
        """
        columns = {each.benchmark: each.scaling_law_fit_data for each in self.series}
        forecasts: list[backtest.LawForecast] = []
        for name, fit in self.fits[law_name].items():
            rigid_fit = replace(fit, drift_sd_draws=np.zeros_like(fit.drift_sd_draws))
            forecasts += backtest.forecast_held_out_points(law_name, name, rigid_fit, columns[name])
        return float(np.mean([each.is_in_prediction_band for each in forecasts if predicts_large_from_small(each)]))


def predicts_large_from_small(law_forecast: backtest.LawForecast) -> bool:
    """Return whether a forecast for a large system comes from a fit to small systems.

    Only such forecasts count in the score of a scaling law. Small: up to MAX_FITTED_ACCELERATORS. Large:
    MIN_SCORED_ACCELERATORS or more.
    """
    return law_forecast.fitted_to <= MAX_FITTED_ACCELERATORS and law_forecast.workers >= MIN_SCORED_ACCELERATORS


def has_enough_sizes_to_fit(series: ScalingSeries) -> bool:
    """Return whether a scaling series has enough system sizes to fit scaling laws to.

    At least MIN_FITTED_SIZES sizes (numbers of accelerators) are needed. Laws are fitted to sizes up to
    MAX_FITTED_ACCELERATORS. If all sizes of a series are larger, laws are fitted to all sizes except the largest.
    """
    counts = series.accelerator_counts
    fitted = [count for count in counts if count <= MAX_FITTED_ACCELERATORS] or counts[:-1]
    return len(fitted) >= MIN_FITTED_SIZES


@cache
def evaluate_laws(series: tuple[ScalingSeries, ...], law_names: tuple[str, ...] = tuple(LAWS)) -> LawEvaluation:
    """Fit scaling laws to all workloads with results at enough system sizes.

    Forecasts and backtests are computed too.
    """
    fittable = tuple(filter(has_enough_sizes_to_fit, series))
    columns = {each.benchmark: each.scaling_law_fit_data for each in fittable}
    contest = backtest.LawComparison({law: LAWS[law] for law in law_names}, columns, MAX_FITTED_ACCELERATORS)
    return LawEvaluation(
        series=fittable,
        fits={law: contest.law_fits_by_series(law) for law in law_names},
        forecasts=tuple(each for law in law_names for each in contest.forecasts(law)),
        backtests={law: contest.backtest_each_series(law) for law in law_names},
    )


@cache
def fit_law_to_each_series(
    all_scaling_series: tuple[ScalingSeries, ...], law: laws.ScalingLaw
) -> dict[str, laws.LawFit]:
    """Fit a scaling law to all points of each scaling series.

    One noise estimate is computed from the residuals of all series.
    """
    first_noise = laws.NoiseEstimate(sd=0.1, degrees_of_freedom=1)
    first_fits = [law.fit(each.scaling_law_fit_data, first_noise) for each in all_scaling_series]
    freedom = sum(fit.degrees_of_freedom for fit in first_fits)
    squares = sum(float((fit.log_residuals**2).sum()) for fit in first_fits)
    pooled = laws.NoiseEstimate(float(np.sqrt(squares / freedom)), freedom) if freedom else backtest.PILOT_NOISE
    return {each.benchmark: law.fit(each.scaling_law_fit_data, pooled) for each in all_scaling_series}
