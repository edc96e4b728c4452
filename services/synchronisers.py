"""May a worker start its next step, or must it wait for the slowest; and how many gradients make one update?"""

from abc import abstractmethod
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.component import Component


class Synchroniser(Component):
    """A waiting policy, without state."""

    @abstractmethod
    def may_start(self, step: int, slowest: int) -> bool:
        """May a worker start its step number `step` (from 0) when the slowest worker has finished `slowest` steps?"""

    @abstractmethod
    def gathers(self, workers: int) -> int:
        """How many gradients a server averages in one update, when `workers` workers take part."""

    @property
    def lockstep(self) -> bool:
        """Whether nobody may be a step ahead of the slowest, so that all hold the same parameters."""
        return not self.may_start(step=1, slowest=0)


class Bsp(Synchroniser):
    """Bulk synchronous parallel: nobody starts a step before everybody has finished the one before.

    L. G. Valiant, "A bridging model for parallel computation", CACM 33(8), 1990.
    """

    kind: Literal["bsp"] = "bsp"

    def may_start(self, step: int, slowest: int) -> bool:
        return step <= slowest

    def gathers(self, workers: int) -> int:
        return workers


class Asp(Synchroniser):
    """Asynchronous parallel: nobody ever waits; staleness has no bound.

    B. Recht et al., "Hogwild!", NeurIPS 2011; J. Dean et al., "Large scale distributed deep networks", NeurIPS 2012.
    """

    kind: Literal["asp"] = "asp"

    def may_start(self, step: int, slowest: int) -> bool:  # noqa: ARG002 - the answer depends on neither
        return True

    def gathers(self, workers: int) -> int:  # noqa: ARG002 - every gradient is an update of its own
        return 1


AnySynchroniser: TypeAlias = Annotated[Bsp | Asp, Field(discriminator="kind")]
