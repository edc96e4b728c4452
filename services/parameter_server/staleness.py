"""Staleness weightings: the weight of a gradient as a function of its staleness.

The staleness τ is the number of updates made between reading parameters and using the gradient computed from them.

A weight multiplies the learning rate of the update that uses the gradient. In an update from several gradients, each
one counts by its samples times its weight. For SGD it makes no difference whether the rate or the gradient is
multiplied. Adam normalises the magnitude of gradients, so only a change of its rate has an effect.
"""

from abc import abstractmethod
from math import exp
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveFloat

from services.schema.component import ScenarioComponent


class StalenessWeighting(ScenarioComponent):
    """Base class of staleness weightings: gradient weights that depend on staleness.

    Weights are in (0, 1], and never larger for a staler gradient.
    """

    @abstractmethod
    def weight(self, staleness: int) -> float:
        """Return the weight of a gradient with a staleness of `staleness` updates."""

    def accepts_staleness(self, staleness: int) -> bool:  # noqa: ARG002 - most weightings only reduce the weight
        """Return whether an update may use a gradient with a staleness of `staleness` updates.

        Otherwise the gradient is dropped.
        """
        return True

    @property
    def divides_lr_by_worker_count(self) -> bool:
        """Whether the weights divide the learning rate by about the number of workers.

        In asynchronous training with n workers, the weights reduce the learning rate to about 1/n. The mean staleness
        of n workers that never wait is n - 1.
        """
        return False


class UniformWeighting(StalenessWeighting):
    """Weight 1 for every gradient, regardless of staleness."""

    kind: Literal["none"] = "none"

    def weight(self, staleness: int) -> float:  # noqa: ARG002 - the weight does not depend on it
        return 1.0


class InverseWeighting(StalenessWeighting):
    """Weight 1 / max(τ, 1) for a gradient with a staleness of τ updates.

    W. Zhang et al., "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016.
    """

    kind: Literal["inverse"] = "inverse"

    def weight(self, staleness: int) -> float:
        return 1 / max(staleness, 1)

    @property
    def divides_lr_by_worker_count(self) -> bool:
        return True


class DynSgdWeighting(StalenessWeighting):
    """Weight 1 / (1 + τ) for a gradient with a staleness of τ updates.

    J. Jiang et al., "Heterogeneity-aware distributed parameter servers", SIGMOD 2017. We differ: updates are not
    revised when later gradients of the same version arrive.
    """

    kind: Literal["dyn_sgd"] = "dyn_sgd"

    def weight(self, staleness: int) -> float:
        return 1 / (1 + staleness)

    @property
    def divides_lr_by_worker_count(self) -> bool:
        return True


class ExponentialWeighting(StalenessWeighting):
    """Weight exp(-λτ) for a gradient with a staleness of τ updates, with decay rate λ.

    The weight is at least exp(-700), so that it never underflows.
    """

    kind: Literal["exponential"] = "exponential"
    decay: PositiveFloat = Field(description="decay λ of the weight per update of staleness")

    def weight(self, staleness: int) -> float:
        return exp(-min(self.decay * staleness, 700.0))  # exp(-700) is about 1e-304


class CutOffWeighting(StalenessWeighting):
    """Weight 1 up to a maximum staleness.

    Gradients of greater staleness are dropped.
    """

    kind: Literal["cut_off"] = "cut_off"
    oldest: NonNegativeInt = Field(description="maximum staleness, in updates; a staler gradient is dropped")

    def weight(self, staleness: int) -> float:  # noqa: ARG002 - every gradient that is used counts fully
        return 1.0

    def accepts_staleness(self, staleness: int) -> bool:
        return staleness <= self.oldest


AnyStalenessWeighting: TypeAlias = Annotated[
    UniformWeighting | InverseWeighting | DynSgdWeighting | ExponentialWeighting | CutOffWeighting,
    Field(discriminator="kind"),
]
UNIFORM_WEIGHTING = UniformWeighting()
