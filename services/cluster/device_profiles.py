"""How fast are emulated devices, and how much does their speed vary from step to step?"""

from abc import abstractmethod
from collections.abc import Mapping
from math import exp, log
from random import Random
from statistics import NormalDist
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field, PositiveFloat, PositiveInt

from services.schema.component import Component

Factors: TypeAlias = npt.NDArray[np.float64]  # shape (p,)
DeviceName: TypeAlias = Literal["b200", "h200", "h100", "a100", "v100", "rtx-4090", "rtx-3090", "a10"]


class Variation(Component):
    """By how much a paced phase takes longer or shorter than declared: a pure function of seed, rank and step."""

    @abstractmethod
    def factor(self, seed: int, rank: int, step: int) -> float:
        """What the declared duration is multiplied by in this step."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Of the factors."""

    @abstractmethod
    def cdf(self, x: Factors) -> Factors:
        """Probability that a step's factor is not above each of `x`."""


class Lognormal(Variation):
    """Every step on its own; the mean of the factors is 1."""

    kind: Literal["lognormal"] = "lognormal"
    sigma: PositiveFloat = Field(description="standard deviation of the factor's logarithm, such as 0.1")

    def factor(self, seed: int, rank: int, step: int) -> float:
        return exp(Random(f"{seed} {rank} {step}").gauss(-(self.sigma**2) / 2, self.sigma))

    @property
    def mean(self) -> float:
        return 1.0

    def cdf(self, x: Factors) -> Factors:
        law = NormalDist(-(self.sigma**2) / 2, self.sigma)
        return np.array([law.cdf(log(each)) if each > 0 else 0.0 for each in x.tolist()])


class OnOff(Variation):
    """A straggler that comes and goes: slow for some steps, then as declared for some."""

    kind: Literal["on_off"] = "on_off"
    slowdown: Annotated[float, Field(gt=1)] = Field(description="what a slow step's duration is multiplied by")
    slow_steps: PositiveInt = Field(10, description="mean number of slow steps in a row")
    fast_steps: PositiveInt = Field(90, description="mean number of other steps in a row")

    def factor(self, seed: int, rank: int, step: int) -> float:
        """A period has a slow stretch of its mean length at a place that the seed decides."""
        period = self.slow_steps + self.fast_steps
        number, place = divmod(step, period)
        begin = Random(f"{seed} {rank} {number}").randrange(self.fast_steps + 1)
        return self.slowdown if begin <= place < begin + self.slow_steps else 1.0

    @property
    def mean(self) -> float:
        return self._fast + (1 - self._fast) * self.slowdown

    @property
    def _fast(self) -> float:
        """Share of steps as declared."""
        return self.fast_steps / (self.slow_steps + self.fast_steps)

    def cdf(self, x: Factors) -> Factors:
        return np.where(x >= self.slowdown, 1.0, np.where(x >= 1.0, self._fast, 0.0))


AnyVariation: TypeAlias = Annotated[Lognormal | OnOff, Field(discriminator="kind")]

# Training throughput of one device relative to an A100 SXM4 with 80 GB. Where nothing else is said: Lambda's
# deeplearning-benchmark, pytorch-train-throughput-fp16.csv, geometric mean over SSD, BERT base, BERT large and
# ResNet-50, one GPU. Other models differ: H100 by 1.65 (ResNet-50) to 1.98 (BERT large).
SPEEDS: Mapping[DeviceName, float] = {
    # MLPerf Training v4.1, NVIDIA's 8-GPU results against its H100: geometric mean of the minutes' ratios over BERT,
    # Llama 2 70B LoRA, SSD and Stable Diffusion (B200 1.71, H200 1.09), times the H100's 1.79.
    "b200": 3.06,
    "h200": 1.95,
    "h100": 1.79,  # SXM5, 80 GB
    "a100": 1.0,
    "v100": 0.45,  # 16 GB
    "rtx-4090": 0.73,
    "rtx-3090": 0.44,
    "a10": 0.34,
}
