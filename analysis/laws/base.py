"""Base class of scaling laws: formulas that are fitted to measurements.

Parameters are positive, the fit uses logarithms, and predictions have an uncertainty.

Times and samples vary by factors, so residuals are differences of logarithms. Intervals come from randomised refits:
observations are perturbed by their noise, priors by their width, and each perturbed copy is fit again (randomised
maximum likelihood, Oliver et al. 1996; randomize-then-optimize, Bardsley et al. 2014). For linear laws these draws are
the posterior. The noise itself is drawn from its scaled inverse chi-squared distribution, so that three points give
wide bands.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log
from typing import ClassVar

import numpy as np

from analysis.laws.solver import solve_least_squares
from analysis.statistics.centre import Floats
from services.schema.component import ScenarioComponent

SeriesColumns = Mapping[str, Floats]  # columns of a series, shape (n,) each: workers, seconds, samples, batch, ...

FIT_DRAWS = 1000  # of 400, the 95 % intervals of some laws contained the true value in 87 % of simulated series
CHI_SQUARE_DRAWS_PER_REFIT = 100
UNIDENTIFIED_RATIO = 1000  # upper / lower end of the 95 % interval above which a parameter is not identified
MIN_NOISE_SD = 1e-6  # of a logarithm, so that bands of a law that fits exactly are thin, not empty


@dataclass(frozen=True)
class NoiseEstimate:
    """Random deviation of measurements from a scaling law: standard deviation of their logarithms.

    0.1 is about 10 %. The drift of a law is how far it departs from data beyond the sizes that it was fit to. Its sd is
    that of a random walk of the logarithm from the largest of these sizes to e times that size.
    """

    sd: float = 0.0  # of the logarithm of an observation around the law
    degrees_of_freedom: float = 0.0  # of the estimate `sd`; 0 if the noise is unknown
    drift_sds: Floats = field(default_factory=lambda: np.zeros(1))  # equally likely values of the drift's sd


@dataclass(frozen=True)
class PredictionBand:
    """Predictions of a scaling law for n inputs, each with the ends of its interval.

    All arrays have shape (n,).
    """

    centre: Floats  # at the fitted parameters
    low: Floats
    high: Floats


class ScalingLaw(ScenarioComponent, ABC):
    """Formula that predicts one positive quantity from others, such as time from workers.

    The predicted quantity is named `output`, the others are named `inputs`.
    """

    formula: ClassVar[str]
    parameter_names: ClassVar[tuple[str, ...]]
    inputs: ClassVar[tuple[str, ...]]  # the first is the size, along which the law extrapolates
    output: ClassVar[str]
    noise_terms: ClassVar[int] = 1  # number of observed quantities with noise of their own whose product is the output

    @abstractmethod
    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        """Return the outputs that the scaling law predicts for n inputs.

        Outputs have the shape (..., n). The positive parameters have the shape (..., parameters).
        """

    @abstractmethod
    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        """Return positive parameters from which the fit of the law starts.

        They are estimated from the series of measurements.
        """

    def observation_logarithms(self, series: SeriesColumns) -> Floats:
        """Return the logarithms of the measured values to which the law is fitted.

        The array has the shape (observations,).
        """
        return np.log(series[self.output])

    def predict_log_outputs(self, law_parameters: Floats, series_columns: SeriesColumns) -> Floats:
        """Return the logarithms of the observations that the law predicts.

        The array has the shape (..., observations).
        """
        return np.log(self.predict_output(law_parameters, series_columns))

    def make_log_param_prior(self, series: SeriesColumns) -> tuple[Floats, Floats]:  # noqa: ARG002 -- priors may depend on the data
        """Return mean and standard deviation (sd) of the prior of each parameter's logarithm.

        An infinite sd means no prior.
        """
        return np.zeros(len(self.parameter_names)), np.full(len(self.parameter_names), inf)

    def fit(
        self, series: SeriesColumns, noise: NoiseEstimate | None = None, refit_count: int = FIT_DRAWS, seed: int = 0
    ) -> "LawFit":
        """Fit the law to a series of measurements.

        The result contains the least-squares parameters and random draws of plausible parameters.

        Args:
            series: columns of the series, with `inputs` and `output`.
            noise: noise known from other series; None where nothing is known.
            refit_count: number of refits to perturbed data, for intervals and bands.
            seed: seed of the draws.

        Raises:
            ValueError: a column is missing or not positive, or the series has as many parameters as points and the
                noise is unknown.
        """
        self._check_series_columns(series)
        return _fit_law_with_refits(self, series, noise or NoiseEstimate(), refit_count, np.random.default_rng(seed))

    def _check_series_columns(self, series: SeriesColumns) -> None:
        """Raise ValueError if the law cannot be fitted to a series of measurements.

        The series must have every column that the law needs, and these columns only positive, finite values.
        """
        for name in (*self.inputs, self.output):
            if name not in series:
                raise ValueError(f"{self.kind} needs the column {name}; the series has {', '.join(series)}")
            if not (np.isfinite(series[name]) & (series[name] > 0)).all():
                raise ValueError(f"{name} must be positive and finite; {self.kind} is fit to logarithms")


@dataclass(frozen=True)
class LawFit:
    """Scaling law fitted to one series of measurements, with random draws of plausible parameters."""

    law: ScalingLaw
    parameters: Floats  # (parameters,)
    parameter_draws: Floats  # (draws, parameters)
    noise_sd_draws: Floats  # (draws,), of the logarithm of a point
    drift_sd_draws: Floats  # (draws,)
    log_residuals: Floats  # logarithms: observed - fitted
    degrees_of_freedom: int  # residuals less the parameters without a prior
    size_range: tuple[float, float]  # smallest and largest size of the series: the calibrated domain

    def simulate_new_measurements(self, input_values: SeriesColumns, random_seed: int = 0) -> Floats:
        """Return simulated measurements at n inputs.

        They are drawn from the fitted law and its noise. The array has the shape (draws, n).

        Draws vary by the parameters, the noise of an observation, and the drift of the law beyond the sizes of the fit.
        """
        generator = np.random.default_rng(random_seed)
        log_predictions = np.log(self.law.predict_output(self.parameter_draws, input_values))
        # One normal number per draw, the same at all sizes, so that bands are smooth.
        noise_factors, drift_factors = generator.standard_normal((2, len(log_predictions), 1))
        noise = np.sqrt(self.law.noise_terms) * self.noise_sd_draws[:, None] * noise_factors
        drift = self.drift_sd_draws[:, None] * np.sqrt(self.log_distance_to_fit_range(input_values)) * drift_factors
        with np.errstate(over="ignore"):  # the noise of a series of few points may be huge: an infinite upper end
            return np.asarray(np.exp(log_predictions + noise + drift))

    def prediction_band(self, input_values: SeriesColumns, coverage_percent: float = 90) -> PredictionBand:
        """Return the prediction band of new measurements at each size.

        The band holds the central `coverage_percent` of simulated new measurements.
        """
        tails = [(100 - coverage_percent) / 2, (100 + coverage_percent) / 2]
        low, high = np.percentile(self.simulate_new_measurements(input_values), tails, axis=0)
        return PredictionBand(self.law.predict_output(self.parameters, input_values), low, high)

    def log_distance_to_fit_range(self, input_values: SeriesColumns) -> Floats:
        """Return how far each size lies outside of the range of fitted sizes.

        The distance is |ln(size / nearest end)|, and 0 inside the range.
        """
        size = input_values[self.law.inputs[0]]
        return np.maximum(0, np.maximum(np.log(size / self.size_range[1]), np.log(self.size_range[0] / size)))

    def parameter_interval(self, parameter_name: str, coverage_percent: float = 95) -> tuple[float, float]:
        """Return an interval that states how uncertain one parameter of the law is.

        The interval holds the central `coverage_percent` of the random draws of the parameter.
        """
        values = self.parameter_draws[:, self.law.parameter_names.index(parameter_name)]
        low, high = np.percentile(values, [(100 - coverage_percent) / 2, (100 + coverage_percent) / 2])
        return float(low), float(high)

    @property
    def unidentified_parameters(self) -> tuple[str, ...]:
        """Names of parameters that the data do not determine.

        The 95 % interval of such a parameter spans a factor above 1000.
        """
        intervals = {name: self.parameter_interval(name) for name in self.law.parameter_names}
        return tuple(name for name, (low, high) in intervals.items() if high > UNIDENTIFIED_RATIO * low)

    @property
    def akaike_criterion(self) -> float:
        """Akaike's information criterion, corrected for few points (Hurvich and Tsai 1989).

        n ln(RSS/n) + 2k + 2k(k+1)/(n-k-1) for n residuals and k parameters, the noise counted as one; infinite where
        n <= k + 1.
        """
        n, k = self.log_residuals.size, self.parameters.size + 1
        if n <= k + 1:
            return inf
        mean_square = max(float((self.log_residuals**2).mean()), MIN_NOISE_SD**2)
        return n * log(mean_square) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def _fit_law_with_refits(
    law: ScalingLaw, series: SeriesColumns, noise: NoiseEstimate, refit_count: int, rng: np.random.Generator
) -> LawFit:
    """Fit a scaling law to measurements, and estimate the uncertainty of the fit.

    The uncertainty comes from refits to many randomly perturbed copies of the measurements.
    """
    observations, (prior_means, prior_sds) = law.observation_logarithms(series), law.make_log_param_prior(series)
    has_prior = np.isfinite(prior_sds)
    initial = np.log(law.initial_fit_parameters(series))[None]
    noise_sd = np.array([noise.sd or 0.1])  # weighs points against priors while the noise of the series is unknown
    fitted = _fit_log_law_parameters(
        law, series, observations[None], prior_means[None], noise_sd, initial, high_precision=True
    )[0]
    residuals = observations - law.predict_log_outputs(np.exp(fitted), series)
    degrees_of_freedom = int(residuals.size - (~has_prior).sum())
    noise_scale = _pool_residual_norm(law, residuals, degrees_of_freedom, noise)
    chi_squares = _draw_stratified_chi_squares(rng, degrees_of_freedom + noise.degrees_of_freedom, refit_count)
    noise_sds = noise_scale / np.sqrt(chi_squares)
    observation_copies = observations + noise_sds[:, None] * rng.standard_normal((refit_count, observations.size))
    prior_shifts = np.where(has_prior, prior_sds, 0) * rng.standard_normal((refit_count, prior_means.size))
    # A parameter that was fit as nearly zero has no gradient in its logarithm: a refit that starts there stays there.
    starts = np.repeat(np.maximum(fitted, initial), refit_count, axis=0)
    draws = _fit_log_law_parameters(law, series, observation_copies, prior_means + prior_shifts, noise_sds, starts)
    sizes = series[law.inputs[0]]
    return LawFit(
        law=law,
        parameters=np.exp(fitted),
        parameter_draws=np.exp(draws),
        noise_sd_draws=noise_sds,
        drift_sd_draws=rng.choice(noise.drift_sds, refit_count),
        log_residuals=residuals,
        degrees_of_freedom=degrees_of_freedom,
        size_range=(float(sizes.min()), float(sizes.max())),
    )


def _draw_stratified_chi_squares(rng: np.random.Generator, degrees_of_freedom: float, count: int) -> Floats:
    """Return `count` chi-squared numbers in random order that are spread evenly over the quantiles.

    The ends of intervals then vary less than with independent draws.
    """
    ascending = np.sort(rng.chisquare(degrees_of_freedom, CHI_SQUARE_DRAWS_PER_REFIT * count))
    return np.asarray(rng.permutation(ascending.reshape(count, -1)[:, CHI_SQUARE_DRAWS_PER_REFIT // 2]))


def _fit_log_law_parameters(
    law: ScalingLaw,
    series_columns: SeriesColumns,
    log_observation_sets: Floats,
    log_prior_mean_sets: Floats,
    noise_sds: Floats,
    initial_log_parameters: Floats,
    *,
    high_precision: bool = False,
) -> Floats:
    """Return the logarithms of the least-squares parameters for each set of observations.

    Each prior adds one residual.
    """
    _, prior_sds = law.make_log_param_prior(series_columns)
    has_prior = np.isfinite(prior_sds)

    def compute_weighted_residuals(log_parameters: Floats) -> Floats:
        misfits = (law.predict_log_outputs(np.exp(log_parameters), series_columns) - log_observation_sets) / noise_sds[
            :, None
        ]
        prior_misfits = (log_parameters[..., has_prior] - log_prior_mean_sets[:, has_prior]) / prior_sds[has_prior]
        return np.concatenate([misfits, prior_misfits], axis=-1)

    return solve_least_squares(compute_weighted_residuals, initial_log_parameters, high_precision=high_precision)


def _pool_residual_norm(
    law: ScalingLaw, log_residuals: Floats, degrees_of_freedom: int, earlier_fit_noise: NoiseEstimate
) -> float:
    """Return the root of the summed squared residuals of several fits.

    These fits are the current fit and those that gave `earlier_fit_noise`.

    Divided by the root of a chi-squared random number, it is a draw of the noise's sd.
    """
    if degrees_of_freedom < 0 or degrees_of_freedom + earlier_fit_noise.degrees_of_freedom <= 0:
        raise ValueError(
            f"{log_residuals.size} observations are too few to fit the {len(law.parameter_names)} parameters of "
            f"{law.kind} and the noise; give more observations, or a noise estimate from other series"
        )
    squares = float((log_residuals**2).sum()) + earlier_fit_noise.degrees_of_freedom * earlier_fit_noise.sd**2
    return float(np.sqrt(max(squares, (degrees_of_freedom + earlier_fit_noise.degrees_of_freedom) * MIN_NOISE_SD**2)))
