"""How long does training take on N workers with this batch? Put together from parts that are fit apart.

S = S_min (1 + B/B_noise)    samples to target (`critical_batch`)
t = t0 + c B/N               seconds of a step (`compute`), observed as seconds x batch / samples
T = S/B x t
"""

from typing import ClassVar, Literal, NamedTuple

import numpy as np

from analysis.laws.base import Columns, Law
from analysis.laws.compute import Compute
from analysis.laws.critical_batch import CriticalBatch
from analysis.statistics.centre import Floats

SAMPLES, STEP = CriticalBatch(), Compute()


class Prior(NamedTuple):
    """A log-normal prior of a ratio."""

    median: float
    sd: float  # of its logarithm


class Parts(Law):
    """Steps and samples of one series. Its batch is `given`, or the `best` for the parts that were found.

    Priors relate to the smallest system seen: whoever built it chose its batch. Before any data, that batch is
    below the noise scale, or samples would be wasted, and above a hundredth of it, or a larger one would be free; and
    what a step costs whatever its size is between 0.5 % and 50 % of what its samples cost.
    """

    kind: Literal["parts"] = "parts"
    formula: ClassVar[str] = "T = S_min (1 + B/B_noise) / B x (t0 + c B/N)"
    parameters: ClassVar[tuple[str, ...]] = ("S_min", "B_noise", "t0", "c")
    inputs: ClassVar[tuple[str, ...]] = ("workers", "batch", "samples")
    tells: ClassVar[str] = "seconds"
    terms: ClassVar[int] = 2  # samples and seconds of a step

    batch: Literal["given", "best"] = "given"
    noise_ratio: Prior = Prior(10, 1.15)  # B_noise / batch of the smallest system; sd: 95 % within ten times
    fixed_ratio: Prior = Prior(0.05, 1.15)  # t0 / (c x local batch of the smallest system)

    def value(self, theta: Floats, at: Columns) -> Floats:
        batch = at["batch"] if self.batch == "given" else best_batch(theta, at["workers"])
        told = {"batch": batch, "local_batch": batch / at["workers"]}
        return SAMPLES.value(theta[..., :2], told) / batch * STEP.value(theta[..., 2:], told)

    def observed(self, seen: Columns) -> Floats:
        return np.concatenate([SAMPLES.observed(seen), STEP.observed(steps(seen))])

    def modelled(self, theta: Floats, seen: Columns) -> Floats:
        parts = SAMPLES.modelled(theta[..., :2], seen), STEP.modelled(theta[..., 2:], steps(seen))
        return np.concatenate(parts, axis=-1)

    def start(self, seen: Columns) -> Floats:
        mean, _ = self.prior(seen)
        begin = np.concatenate([SAMPLES.start(seen), STEP.start(steps(seen))])
        begin[1] = np.exp(mean[1])
        return begin

    def prior(self, seen: Columns) -> tuple[Floats, Floats]:
        """On B_noise and t0, which few sizes of batch tell badly; none on what every point tells."""
        first = int(np.argmin(seen["workers"]))
        step = steps(seen)
        share = self.fixed_ratio.median / (1 + self.fixed_ratio.median)
        medians = [1, self.noise_ratio.median * seen["batch"][first], share * step["step_seconds"][first], 1]
        return np.log(medians), np.array([np.inf, self.noise_ratio.sd, self.fixed_ratio.sd, np.inf])


def steps(seen: Columns) -> Columns:
    """The series with local batches and seconds per step."""
    local, step = seen["batch"] / seen["workers"], seen["seconds"] * seen["batch"] / seen["samples"]
    return {**seen, "local_batch": local, "step_seconds": step}


def best_batch(theta: Floats, workers: Floats) -> Floats:
    """sqrt(t0 N B_noise / c), where T is least (derivation: `analysis.laws.best_batch`)."""
    noise, fixed, each = (theta[..., place, None] for place in (1, 2, 3))
    return np.sqrt(fixed * workers * noise / each)
