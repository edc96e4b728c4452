"""What is a stale gradient worth? τ is the number of updates made between reading parameters and using the gradient.

A weight multiplies the learning rate of the update that the gradient goes into; of several gradients in one update,
each counts by its samples times its weight. To SGD it is the same whether rate or gradient is multiplied; Adam forgets
how large gradients are, and heeds its rate.
"""

from abc import abstractmethod
from math import exp
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveFloat

from services.schema.component import Component


class Staleness(Component):
    """A weight in (0, 1] for every age: 1 for what is fresh, never more for what is older."""

    @abstractmethod
    def weight(self, staleness: int) -> float:
        """Of a gradient that is `staleness` updates old."""

    def takes(self, staleness: int) -> bool:  # noqa: ARG002 - most only weigh
        """Whether a gradient of that age is used at all."""
        return True

    @property
    def divides_by_workers(self) -> bool:
        """Whether it does on average what 1/n of the rate does: without waiting, the mean of τ is n - 1."""
        return False


class Unweighted(Staleness):
    """Every gradient counts the same: the zero of the family."""

    kind: Literal["none"] = "none"

    def weight(self, staleness: int) -> float:  # noqa: ARG002 - that is the point
        return 1.0


class Inverse(Staleness):
    """1 / max(τ, 1). W. Zhang et al., "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016."""

    kind: Literal["inverse"] = "inverse"

    def weight(self, staleness: int) -> float:
        return 1 / max(staleness, 1)

    @property
    def divides_by_workers(self) -> bool:
        return True


class DynSgd(Staleness):
    """1 / (1 + τ). J. Jiang et al., "Heterogeneity-aware distributed parameter servers", SIGMOD 2017.

    We differ: updates that were made are not revised when later gradients of the same version arrive.
    """

    kind: Literal["dyn_sgd"] = "dyn_sgd"

    def weight(self, staleness: int) -> float:
        return 1 / (1 + staleness)

    @property
    def divides_by_workers(self) -> bool:
        return True


class Exponential(Staleness):
    """exp(-λτ), and never less than the smallest normal number, so that it stays a weight."""

    kind: Literal["exponential"] = "exponential"
    decay: PositiveFloat = Field(description="λ, per update")

    def weight(self, staleness: int) -> float:
        return exp(-min(self.decay * staleness, 700.0))  # the exponential of -700 is 1e-304


class CutOff(Staleness):
    """1 up to an age, and beyond it the gradient is dropped."""

    kind: Literal["cut_off"] = "cut_off"
    oldest: NonNegativeInt = Field(description="updates after which a gradient is dropped")

    def weight(self, staleness: int) -> float:  # noqa: ARG002 - what is taken counts fully
        return 1.0

    def takes(self, staleness: int) -> bool:
        return staleness <= self.oldest


AnyStaleness: TypeAlias = Annotated[Unweighted | Inverse | DynSgd | Exponential | CutOff, Field(discriminator="kind")]
UNWEIGHTED = Unweighted()
