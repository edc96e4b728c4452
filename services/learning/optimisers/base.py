"""Base classes of optimisers: the state between two updates, and the update of a parameter vector."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from services.learning.layout import ArrayRange
from services.schema.arrays import Vector
from services.schema.component import ScenarioComponent


@dataclass(frozen=True)
class OptimiserState:
    """State that an optimiser keeps between two updates of the parameters.

    It consists of the number of updates, and of vectors such as the velocity.
    """

    update_count: int  # updates so far
    slots: tuple[Vector, ...]  # vectors as long as the parameters, such as the velocity; each optimiser defines its own


class Optimiser(ScenarioComponent):
    """Base class of optimisers: update rules for the parameters of a model.

    The parameters are θ, their gradient is g. Methods do not modify their arguments. Parameters, gradient and slots are
    vectors of the same length.
    """

    rate: float = Field(gt=0, description="learning rate η")
    weight_decay: float = Field(default=0.0, ge=0, description="factor λ of weight decay, which shrinks parameters")

    @property
    @abstractmethod
    def is_element_wise(self) -> bool:
        """Whether each entry of the vector is updated independently of the other entries.

        Then a contiguous range of the vector can be updated alone, with the same range of the state, and gets the same
        bits as in an update of the whole vector. So each parameter server can update its own range.
        """

    @property
    @abstractmethod
    def applies_momentum(self) -> bool:
        """Whether an update also contains earlier gradients, by a velocity or a running mean."""

    @abstractmethod
    def init_state(self, params: Vector) -> OptimiserState:
        """Return the optimiser's state before the first update of `params`."""

    @abstractmethod
    def update_params(
        self,
        params: Vector,
        grad: Vector,
        state: OptimiserState,
        arrays: Sequence[ArrayRange] = (),
        rate_factor: float = 1.0,
    ) -> tuple[Vector, OptimiserState]:
        """Return the parameters and the state after one update with the gradient `grad`.

        Args:
            params: parameters before the update.
            grad: gradient at these parameters.
            state: state before the update.
            arrays: ranges of the model's arrays, which cover the vector; element-wise optimisers do not need them.
            rate_factor: factor on the learning rate of this update.

        Raises:
            ValueError: the optimiser is not element-wise, and the arrays do not cover the vector.
        """


class ElementWiseOptimiser(Optimiser):
    """Base class of optimisers that update each entry of the vector independently of the other entries."""

    @property
    def is_element_wise(self) -> bool:
        return True

    def update_params(
        self,
        params: Vector,
        grad: Vector,
        state: OptimiserState,
        arrays: Sequence[ArrayRange] = (),  # noqa: ARG002 - each entry is updated alone
        rate_factor: float = 1.0,
    ) -> tuple[Vector, OptimiserState]:
        return self.update_entries(params, grad, state, self.rate * rate_factor)

    @abstractmethod
    def update_entries(
        self, params: Vector, grad: Vector, state: OptimiserState, rate: float
    ) -> tuple[Vector, OptimiserState]:
        """Return the parameters and the state after one update with the learning rate `rate`."""

    def add_weight_decay(self, params: Vector, grad: Vector) -> Vector:
        """Return the gradient with weight decay (L2 penalty) added.

        The result is g + λ·θ: the gradient g of the loss, plus the gradient of the L2 penalty λ/2·|θ|² on the
        parameters θ.
        """
        return grad + self.weight_decay * params if self.weight_decay else grad
