"""What a law is: a formula with positive parameters, fit to logarithms, that says how sure it is.

Times and samples vary by factors, so residuals are logarithms. Intervals come from randomised refits: observations are
perturbed by their noise, priors by their width, and each perturbed copy is fit again (randomised maximum likelihood,
Oliver et al. 1996; randomize-then-optimize, Bardsley et al. 2014). For linear laws these draws are the posterior.
The noise itself is drawn from its scaled inverse chi-squared distribution, so that three points give wide bands.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log
from typing import ClassVar

import numpy as np

from analysis.laws.solver import solve
from analysis.statistics.centre import Floats
from services.schema.component import Component

Columns = Mapping[str, Floats]  # columns of a series, shape (n,) each: workers, seconds, samples, batch, ...

DRAWS = 400  # the ends of a 90 % band then settle to about a tenth of its half
UNSURE = 1000  # a parameter whose 95 % spans more than this factor is not identified
SLIGHT = 1e-6  # least noise, as a share: of what fits exactly the bands are thin, not empty


@dataclass(frozen=True)
class Noise:
    """What other series tell about this one's residuals; logarithms, so 0.1 is about 10 %."""

    sd: float = 0.0  # of a point around its law
    dof: float = 0.0  # residuals that `sd` was found from; 0: nothing is known
    drifts: Floats = field(default_factory=lambda: np.zeros(1))  # equally likely: how a law goes astray beyond its data

    # A drift is the sd, of a logarithm, that a random walk has gone from the largest size seen to e times that size.


@dataclass(frozen=True)
class Band:
    """A prediction, shape (n,) each."""

    centre: Floats  # at the parameters that fit best
    low: Floats
    high: Floats


class Law(Component, ABC):
    """A formula of `inputs` for `tells`; all are columns of a series, and positive."""

    formula: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]
    inputs: ClassVar[tuple[str, ...]]  # the first is the size, along which it extrapolates
    tells: ClassVar[str]
    terms: ClassVar[int] = 1  # observed quantities, each with its own noise, whose product it tells

    @abstractmethod
    def value(self, theta: Floats, at: Columns) -> Floats:
        """What it tells, shape (..., n), for positive parameters of shape (..., parameters)."""

    @abstractmethod
    def start(self, seen: Columns) -> Floats:
        """Positive parameters near enough to begin with, from the observations."""

    def observed(self, seen: Columns) -> Floats:
        """Logarithms that are fit, shape (observations,)."""
        return np.log(seen[self.tells])

    def modelled(self, theta: Floats, seen: Columns) -> Floats:
        """The same by the formula, shape (..., observations)."""
        return np.log(self.value(theta, seen))

    def prior(self, seen: Columns) -> tuple[Floats, Floats]:  # noqa: ARG002 -- laws with priors relate them to the data
        """Mean and sd of each parameter's logarithm; an infinite sd says nothing."""
        return np.zeros(len(self.parameters)), np.full(len(self.parameters), inf)

    def fit(self, seen: Columns, noise: Noise | None = None, draws: int = DRAWS, seed: int = 0) -> "Fit":
        """The parameters of least squares and `draws` that could as well be true.

        Raises:
            ValueError: a column is missing or not positive, or as many parameters as points and nothing known of noise.
        """
        self._check(seen)
        return _fit(self, seen, noise or Noise(), draws, np.random.default_rng(seed))

    def _check(self, seen: Columns) -> None:
        for name in (*self.inputs, self.tells):
            if name not in seen:
                raise ValueError(f"{self.kind} needs {name}; the series has {', '.join(seen)}")
            if not (np.isfinite(seen[name]) & (seen[name] > 0)).all():
                raise ValueError(f"{name} must be positive and finite; {self.kind} is fit to logarithms")


@dataclass(frozen=True)
class Fit:
    """A law on a series."""

    law: Law
    theta: Floats  # (parameters,)
    draws: Floats  # (draws, parameters)
    sds: Floats  # (draws,): noise of a point
    drifts: Floats  # (draws,)
    residuals: Floats  # logarithms: observed - fitted
    freedom: int  # residuals beyond the parameters that no prior tells
    sizes: tuple[float, float]  # smallest and largest size seen: the calibrated domain

    def samples(self, at: Columns, seed: int = 0) -> Floats:
        """What a new observation could be, shape (draws, n): by parameters, its noise, and drift beyond the data."""
        generator = np.random.default_rng(seed)
        told = np.log(self.law.value(self.draws, at))
        beyond = np.sqrt(self.distance(at))
        chance = generator.standard_normal((2, len(told), 1))  # the same at all places, so that bands are smooth
        spread = np.sqrt(self.law.terms) * self.sds[:, None] * chance[0]
        drift = self.drifts[:, None] * beyond * chance[1]
        return np.asarray(np.exp(told + spread + drift))

    def band(self, at: Columns, level: float = 90) -> Band:
        """The central `level` percent of `samples`, for one new observation at each place."""
        low, high = np.percentile(self.samples(at), [(100 - level) / 2, (100 + level) / 2], axis=0)
        return Band(self.law.value(self.theta, at), low, high)

    def distance(self, at: Columns) -> Floats:
        """ln(size / the end of what was seen); 0 inside the calibrated domain."""
        size = at[self.law.inputs[0]]
        return np.maximum(0, np.maximum(np.log(size / self.sizes[1]), np.log(self.sizes[0] / size)))

    def interval(self, parameter: str, level: float = 95) -> tuple[float, float]:
        """The central `level` percent of a parameter's draws."""
        values = self.draws[:, self.law.parameters.index(parameter)]
        low, high = np.percentile(values, [(100 - level) / 2, (100 + level) / 2])
        return float(low), float(high)

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Parameters that these points do not tell: their 95 % spans more than UNSURE times."""
        ends = {name: self.interval(name) for name in self.law.parameters}
        return tuple(name for name, (low, high) in ends.items() if high > UNSURE * low)

    @property
    def aicc(self) -> float:
        """Akaike's criterion, corrected for few points (Hurvich and Tsai 1989); infinite where they are too few for it.

        n ln(RSS/n) + 2k + 2k(k+1)/(n-k-1), k counting the noise.
        """
        n, k = self.residuals.size, self.theta.size + 1
        if n <= k + 1:
            return inf
        mean_square = max(float((self.residuals**2).mean()), SLIGHT**2)
        return n * log(mean_square) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def _fit(law: Law, seen: Columns, noise: Noise, count: int, generator: np.random.Generator) -> Fit:
    """Fits once to find the noise, then `count` perturbed copies."""
    observed, (mean, width) = law.observed(seen), law.prior(seen)
    known = np.isfinite(width)
    weight = np.array([noise.sd or 0.1])  # of a point against a prior, while its noise is unknown
    found = _best(law, seen, observed[None], mean[None], weight, np.log(law.start(seen))[None], fine=True)[0]
    residuals = observed - law.modelled(np.exp(found), seen)
    freedom = int(residuals.size - (~known).sum())
    sds = _noise(law, residuals, freedom, noise) / np.sqrt(generator.chisquare(freedom + noise.dof, count))
    data = observed + sds[:, None] * generator.standard_normal((count, observed.size))
    means = mean + np.where(known, width, 0) * generator.standard_normal((count, mean.size))
    draws = _best(law, seen, data, means, sds, np.repeat(found[None], count, axis=0))
    sizes = seen[law.inputs[0]]
    return Fit(
        law=law,
        theta=np.exp(found),
        draws=np.exp(draws),
        sds=sds,
        drifts=generator.choice(noise.drifts, count),
        residuals=residuals,
        freedom=freedom,
        sizes=(float(sizes.min()), float(sizes.max())),
    )


def _best(
    law: Law, seen: Columns, data: Floats, means: Floats, sds: Floats, begin: Floats, *, fine: bool = False
) -> Floats:
    """Logarithms of parameters for each copy of the data: least squares, with a residual for each prior."""
    _, width = law.prior(seen)
    known = np.isfinite(width)

    def residuals(at: Floats) -> Floats:
        misfit = (law.modelled(np.exp(at), seen) - data) / sds[:, None]
        return np.concatenate([misfit, (at[..., known] - means[:, known]) / width[known]], axis=-1)

    return solve(residuals, begin, fine=fine)


def _noise(law: Law, residuals: Floats, freedom: int, noise: Noise) -> float:
    """The root of all squares: divided by that of a chi-squared number it is a noise that could be true."""
    if freedom < 0 or freedom + noise.dof <= 0:
        raise ValueError(
            f"{residuals.size} observations for the {len(law.parameters)} parameters of {law.kind} leave none to "
            "judge the noise by; give more, or the noise of other series"
        )
    squares = float((residuals**2).sum()) + noise.dof * noise.sd**2
    return float(np.sqrt(max(squares, (freedom + noise.dof) * SLIGHT**2)))
