"""Scaling law of the training time on N workers with batch size B.

The law is composed of a law of the samples and a law of the step time.

S = S_min (1 + B/B_noise)    samples to target (`critical_batch`)
t = t0 + c B/N               seconds of a step (`step_time`), observed as seconds x batch / samples
T = S/B x t
"""

from typing import ClassVar, Literal, NamedTuple

import numpy as np

from analysis.laws.base import ScalingLaw, SeriesColumns
from analysis.laws.critical_batch import CriticalBatchLaw
from analysis.laws.step_time import StepTimeLaw
from analysis.statistics.centre import Floats

SAMPLES_LAW, STEP_LAW = CriticalBatchLaw(), StepTimeLaw()


class LogNormalPrior(NamedTuple):
    """Log-normal prior distribution of the ratio of a parameter to a measured value."""

    median: float
    sd: float  # of its logarithm


class TrainingTimeLaw(ScalingLaw):
    """Scaling law of the training time: number of steps times step time.

    The number of steps is samples to target / batch. Samples and step time each have their own fitted law.

    The batch of each size is `given` in the series, or is the `best` batch for the fitted parameters.

    Priors relate to the smallest system of the series, whose batch its builders chose. Before any data, that batch is
    taken to be below the noise scale B_noise (else samples would be wasted) and above a hundredth of it (else a larger
    batch would be free). The fixed part of a step is taken to be between 0.5 % and 50 % of the part that grows with its
    samples.
    """

    kind: Literal["parts"] = "parts"
    formula: ClassVar[str] = "T = S_min (1 + B/B_noise) / B x (t0 + c B/N)"
    parameter_names: ClassVar[tuple[str, ...]] = ("S_min", "B_noise", "t0", "c")
    inputs: ClassVar[tuple[str, ...]] = ("workers", "batch", "samples")
    output: ClassVar[str] = "seconds"
    noise_terms: ClassVar[int] = 2  # samples and seconds of a step

    batch: Literal["given", "best"] = "given"
    noise_ratio: LogNormalPrior = LogNormalPrior(10, 1.15)  # B_noise / batch of the smallest system; 95 %: factor 10
    fixed_ratio: LogNormalPrior = LogNormalPrior(0.05, 1.15)  # t0 / (c x local batch of the smallest system)

    def predict_output(self, law_parameters: Floats, input_values: SeriesColumns) -> Floats:
        workers = input_values["workers"]
        batch = input_values["batch"] if self.batch == "given" else compute_fastest_batches(law_parameters, workers)
        batch_columns = {"batch": batch, "local_batch": batch / workers}
        samples = SAMPLES_LAW.predict_output(law_parameters[..., :2], batch_columns)
        return samples / batch * STEP_LAW.predict_output(law_parameters[..., 2:], batch_columns)

    def observation_logarithms(self, series: SeriesColumns) -> Floats:
        steps = add_local_batch_and_step_s_columns(series)
        return np.concatenate([SAMPLES_LAW.observation_logarithms(series), STEP_LAW.observation_logarithms(steps)])

    def predict_log_outputs(self, law_parameters: Floats, series_columns: SeriesColumns) -> Floats:
        log_samples = SAMPLES_LAW.predict_log_outputs(law_parameters[..., :2], series_columns)
        log_step_s = STEP_LAW.predict_log_outputs(
            law_parameters[..., 2:], add_local_batch_and_step_s_columns(series_columns)
        )
        return np.concatenate([log_samples, log_step_s], axis=-1)

    def initial_fit_parameters(self, series: SeriesColumns) -> Floats:
        log_prior_means, _ = self.make_log_param_prior(series)
        steps = add_local_batch_and_step_s_columns(series)
        parameters = np.concatenate(
            [SAMPLES_LAW.initial_fit_parameters(series), STEP_LAW.initial_fit_parameters(steps)]
        )
        parameters[1] = np.exp(log_prior_means[1])
        return parameters

    def make_log_param_prior(self, series: SeriesColumns) -> tuple[Floats, Floats]:
        """Return mean and standard deviation (sd) of the prior of each law parameter's logarithm.

        The order is that of `parameter_names`.

        An infinite sd means that a parameter has no prior. Only the noise scale B_noise and the fixed time t0 have
        priors, since a few different batches constrain them badly.
        """
        smallest = int(np.argmin(series["workers"]))
        step_seconds = add_local_batch_and_step_s_columns(series)["step_seconds"][smallest]
        fixed_share = self.fixed_ratio.median / (1 + self.fixed_ratio.median)
        medians = [1, self.noise_ratio.median * series["batch"][smallest], fixed_share * step_seconds, 1]
        return np.log(medians), np.array([np.inf, self.noise_ratio.sd, self.fixed_ratio.sd, np.inf])


def add_local_batch_and_step_s_columns(measurement_series: SeriesColumns) -> SeriesColumns:
    """Return a series of measurements with two more columns.

    The columns are `local_batch` (samples per worker) and `step_seconds`.
    """
    local_batch = measurement_series["batch"] / measurement_series["workers"]
    step_seconds = measurement_series["seconds"] * measurement_series["batch"] / measurement_series["samples"]
    return {**measurement_series, "local_batch": local_batch, "step_seconds": step_seconds}


def compute_fastest_batches(law_parameters: Floats, worker_counts: Floats) -> Floats:
    """Return the global batch size with the shortest training time for each number of workers.

    On N workers, the batch size is B = sqrt(t0 N B_noise / c).

    A step takes t0 + c B/N seconds: t0 is its fixed part, c the seconds per sample. B_noise is the noise scale.

    `law_parameters` are those of `TrainingTimeLaw`, shape (..., 4). `best_batch` has the derivation.
    """
    noise_batch, fixed_s, sample_s = (law_parameters[..., index, None] for index in (1, 2, 3))
    return np.sqrt(fixed_s * worker_counts * noise_batch / sample_s)
