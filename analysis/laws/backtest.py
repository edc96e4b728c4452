"""Backtests of scaling laws: errors of their predictions at numbers of workers that were not used in the fit.

Prediction bands follow from these errors. Noise and drift in the band of a series are estimated from the other series:
a law is fit to the smaller sizes of each and compared with its larger sizes. So no estimate uses the sizes on which a
band is later tested.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.laws.base import LawFit, NoiseEstimate, ScalingLaw, SeriesColumns
from analysis.statistics.centre import Floats

# Noise assumed before any fit: run-to-run spread (sd / olympic mean) of a system's ten runs, median over the systems of
# up to 64 accelerators in MLPerf Training v4.1.
PILOT_NOISE = NoiseEstimate(sd=0.07, degrees_of_freedom=10)

BACKTEST_DRAWS = 100  # fewer than FIT_DRAWS: only a variance is computed from them

# Candidate values of the drift's sd, equally likely before any backtest. With the largest value, a prediction for
# e times the size may be wrong by a factor of e, so the law is useless.
DRIFT_GRID = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class HoldoutError:
    """Error of a scaling law at one number of workers that was not used to fit the law."""

    workers: float
    log_error: float  # ln(predicted / observed)
    variance: float  # of `log_error` if the law were true: from its parameters and PILOT_NOISE
    log_distance: float  # ln(size / largest size of the fit)


@dataclass(frozen=True)
class LawBacktestResult:
    """Residuals of a law fitted to one series of measurements, and its errors at sizes not used in the fit."""

    squared_residuals: float  # sum over the whole series
    degrees_of_freedom: int  # of these residuals
    holdout_errors: tuple[HoldoutError, ...]


def split_series(series: SeriesColumns, size_column: str, max_size: float) -> tuple[SeriesColumns, SeriesColumns]:
    """Split a series of measurements into those at sizes up to `max_size` and those at larger sizes."""
    is_small = series[size_column] <= max_size
    small = {name: values[is_small] for name, values in series.items()}
    large = {name: values[~is_small] for name, values in series.items()}
    return small, large


def backtest_law(law: ScalingLaw, series: SeriesColumns) -> LawBacktestResult:
    """Fit a law to the smaller sizes of a series, for every possible split, and return its errors at the larger sizes.

    The beginning of a series has two sizes or more; one size or more is held out.
    """
    size_column = law.inputs[0]
    whole_fit = law.fit(series, PILOT_NOISE, BACKTEST_DRAWS)
    splits = [split_series(series, size_column, largest) for largest in np.unique(series[size_column])[1:-1]]
    errors = [
        error
        for beginning, held_out in splits
        if _has_enough_observations(law, beginning)
        for error in _holdout_errors(law.fit(beginning, PILOT_NOISE, BACKTEST_DRAWS), held_out)
    ]
    return LawBacktestResult(float((whole_fit.log_residuals**2).sum()), whole_fit.degrees_of_freedom, tuple(errors))


def _has_enough_observations(law: ScalingLaw, series: SeriesColumns) -> bool:
    """Return whether a series has at least as many observations as the law has parameters without a prior."""
    return bool(law.observation_logarithms(series).size >= np.isinf(law.make_log_param_prior(series)[1]).sum())


def _holdout_errors(law_fit: LawFit, held_out_series: SeriesColumns) -> list[HoldoutError]:
    """Return the prediction error of a fitted law at each size that was not used in the fit."""
    sizes, observed = held_out_series[law_fit.law.inputs[0]], held_out_series[law_fit.law.output]
    log_errors = np.log(law_fit.law.predict_output(law_fit.parameters, held_out_series) / observed)
    variances = np.log(law_fit.simulate_new_measurements(held_out_series)).var(axis=0)
    rows = zip(sizes, log_errors, variances, law_fit.log_distance_to_fit_range(held_out_series), strict=True)
    return [HoldoutError(*map(float, row)) for row in rows]


def estimate_residual_noise(backtests: Sequence[LawBacktestResult]) -> NoiseEstimate:
    """Estimate the noise of measurements and the drift, a law's error beyond the fitted sizes, from several backtests.

    The drift is a posterior distribution, since few series cannot show that it is zero. Errors are normal with variance
    + drift^2 x distance. Errors of one series depend on each other, so together they count as one observation (the mean
    of their log likelihoods).
    """
    degrees_of_freedom = sum(record.degrees_of_freedom for record in backtests)
    sd = PILOT_NOISE.sd
    if degrees_of_freedom:
        sd = float(np.sqrt(sum(record.squared_residuals for record in backtests) / degrees_of_freedom))
    log_likelihoods = (_compute_loglik_by_drift(record.holdout_errors) for record in backtests if record.holdout_errors)
    likelihood = np.exp(sum(log_likelihoods, np.zeros(DRIFT_GRID.size)))
    cumulative = np.cumsum(likelihood) / likelihood.sum()
    drift_sds = np.interp(np.linspace(0.01, 0.99, DRIFT_GRID.size), cumulative, DRIFT_GRID)
    return NoiseEstimate(sd, degrees_of_freedom or PILOT_NOISE.degrees_of_freedom, drift_sds)


def _compute_loglik_by_drift(holdout_errors: Sequence[HoldoutError]) -> Floats:
    """Return the mean log likelihood of a series' errors per drift (law error beyond fitted sizes) in DRIFT_GRID."""
    rows = [[error.log_error, error.variance, error.log_distance] for error in holdout_errors]
    log_errors, variances, distances = np.array(rows).T
    total_variance = variances + np.square(DRIFT_GRID)[:, None] * distances
    return np.asarray((-0.5 * (np.log(total_variance) + log_errors**2 / total_variance)).mean(axis=1))


@dataclass(frozen=True)
class LawForecast:
    """Prediction of a scaling law at one measured size that was not used to fit the law, with a 90 % band."""

    series: str
    law: str
    fitted_to: float  # largest size of the fit
    workers: float
    observed: float
    predicted: float
    low: float  # 90 % band
    high: float

    @property
    def relative_error(self) -> float:
        """Relative error of the prediction: predicted / observed - 1."""
        return self.predicted / self.observed - 1

    @property
    def is_in_prediction_band(self) -> bool:
        """Whether the observed value lies inside the 90 % band of the prediction."""
        return self.low <= self.observed <= self.high


@dataclass(frozen=True)
class ForecastScore:
    """Accuracy of one law's forecasts, and share of measurements inside their 90 % bands."""

    law: str
    points: int
    median: float  # of |relative error|
    worst: float  # largest |relative error|
    covered: float  # share of points inside the 90 % band
    width: float  # median of upper / lower end of the band: a law can cover all points by too wide a band


def score_forecasts(law_name: str, law_forecasts: Sequence[LawForecast]) -> ForecastScore:
    """Score the forecasts of one law among those of all laws: their errors, and the coverage of their bands."""
    of_law = [forecast for forecast in law_forecasts if forecast.law == law_name]
    errors = np.abs([forecast.relative_error for forecast in of_law])
    return ForecastScore(
        law=law_name,
        points=len(of_law),
        median=float(np.median(errors)),
        worst=float(errors.max()),
        covered=float(np.mean([forecast.is_in_prediction_band for forecast in of_law])),
        width=float(np.median([forecast.high / forecast.low for forecast in of_law])),
    )


class LawComparison:
    """Comparison of scaling laws: each is fitted to the smaller sizes of several series and forecasts the larger sizes.

    Each law is fit to each series once.
    """

    def __init__(
        self, laws: Mapping[str, ScalingLaw], series: Mapping[str, SeriesColumns], largest_size: float = 64
    ) -> None:
        """Set up the comparison of laws that are fitted to numbers of workers up to `largest_size`."""
        self._laws, self._series, self._largest_size = laws, series, largest_size
        self._records_by_law: dict[str, dict[str, LawBacktestResult]] = {}
        self._fits_by_law: dict[str, dict[str, LawFit]] = {}

    def backtest_each_series(self, law_name: str) -> dict[str, LawBacktestResult]:
        """Return a law's backtest for each series that is long enough, on sizes up to `largest_size`."""
        if law_name not in self._records_by_law:
            law, limit = self._laws[law_name], self._largest_size
            fit_parts = {name: split_series(series, law.inputs[0], limit)[0] for name, series in self._series.items()}
            self._records_by_law[law_name] = {
                name: backtest_law(law, series)
                for name, series in fit_parts.items()
                if series[law.output].size and _has_enough_observations(law, series)
            }
        return self._records_by_law[law_name]

    def law_fits_by_series(self, law_name: str) -> dict[str, LawFit]:
        """Return the fit of a law to each series.

        The noise of measurements is estimated from the other series only. A series without enough sizes up to
        `largest_size` is fit to all sizes but its largest; `LawFit.size_range` records the sizes.
        """
        if law_name not in self._fits_by_law:
            self._fits_by_law[law_name] = {name: self._fit_law_to_series(law_name, name) for name in self._series}
        return self._fits_by_law[law_name]

    def _fit_law_to_series(self, law_name: str, series_name: str) -> LawFit:
        law, records, series = self._laws[law_name], self.backtest_each_series(law_name), self._series[series_name]
        size_column = law.inputs[0]
        largest_size = self._largest_size if series_name in records else float(np.sort(series[size_column])[-2])
        noise = estimate_residual_noise([record for name, record in records.items() if name != series_name])
        return law.fit(split_series(series, size_column, largest_size)[0], noise)

    def forecasts(self, law_name: str) -> list[LawForecast]:
        """Return the forecasts of a law for every measured size that was not used to fit it, over all series."""
        return [
            forecast
            for name, fit in self.law_fits_by_series(law_name).items()
            for forecast in forecast_held_out_points(law_name, name, fit, self._series[name])
        ]


def forecast_held_out_points(law_name: str, series_name: str, fit: LawFit, series: SeriesColumns) -> list[LawForecast]:
    """Return the forecasts of a fitted law for the measured sizes of a series that are larger than the fitted sizes."""
    largest_size = fit.size_range[1]
    _, held_out = split_series(series, fit.law.inputs[0], largest_size)
    if not held_out[fit.law.output].size:
        return []
    band = fit.prediction_band(held_out)
    columns = (held_out[fit.law.inputs[0]], held_out[fit.law.output], band.centre, band.low, band.high)
    return [LawForecast(series_name, law_name, largest_size, *map(float, row)) for row in zip(*columns, strict=True)]
