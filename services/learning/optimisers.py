"""Optimisers: SGD, momentum and Adam.

Every update rule is strictly element-wise. A contiguous range of the parameter vector can be updated alone, with the
same range of the optimiser's state, and gets the same bits as in an update of the whole vector. So each parameter
server can update its own range. Weight decay is the L2 penalty added to the gradient (g + λ·θ), as in PyTorch's SGD and
Adam, not the decoupled form of AdamW.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.schema.arrays import Vector, array_namespace
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
    weight_decay: float = Field(default=0.0, ge=0, description="factor λ of the L2 penalty λ/2·|θ|²")

    @abstractmethod
    def init_state(self, params: Vector) -> OptimiserState:
        """Return the optimiser's state before the first update of `params`."""

    @abstractmethod
    def update_params(self, params: Vector, grad: Vector, state: OptimiserState) -> tuple[Vector, OptimiserState]:
        """Return the parameters and the state after one update with the gradient `grad`."""

    def add_weight_decay(self, params: Vector, grad: Vector) -> Vector:
        """Return the gradient with weight decay (L2 penalty) added.

        The result is g + λ·θ: the gradient g of the loss, plus the gradient of the L2 penalty on the parameters θ.
        """
        return grad + self.weight_decay * params if self.weight_decay else grad


class Sgd(Optimiser):
    """Stochastic gradient descent: θ ← θ - η·g.

    θ are the parameters, η is the learning rate and g the gradient. No vectors are kept between updates.
    """

    kind: Literal["sgd"] = "sgd"

    def init_state(self, params: Vector) -> OptimiserState:  # noqa: ARG002 - it has no slots
        return OptimiserState(0, ())

    def update_params(self, params: Vector, grad: Vector, state: OptimiserState) -> tuple[Vector, OptimiserState]:
        return params - self.rate * self.add_weight_decay(params, grad), OptimiserState(state.update_count + 1, ())


class Momentum(Optimiser):
    """Stochastic gradient descent with momentum.

    Velocity v ← μ·v + g, parameters θ ← θ - η·v. With `nesterov`, θ ← θ - η·(g + μ·v). μ is the momentum, g the
    gradient and η the learning rate. v starts at zero.

    I. Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013, in PyTorch's
    form: the learning rate multiplies the velocity when it is applied, not the gradient when it is added.
    """

    kind: Literal["momentum"] = "momentum"
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum μ")
    nesterov: bool = Field(default=False, description="whether to use Nesterov's form")

    def init_state(self, params: Vector) -> OptimiserState:
        return OptimiserState(0, (array_namespace(params).zeros_like(params),))

    def update_params(self, params: Vector, grad: Vector, state: OptimiserState) -> tuple[Vector, OptimiserState]:
        grad, (velocity,) = self.add_weight_decay(params, grad), state.slots
        velocity = self.momentum * velocity + grad
        direction = grad + self.momentum * velocity if self.nesterov else velocity
        return params - self.rate * direction, OptimiserState(state.update_count + 1, (velocity,))


class Adam(Optimiser):
    """Optimiser Adam, which scales steps by running means of gradients and of their squares.

    The means m ← β₁·m + (1-β₁)·g and v ← β₂·v + (1-β₂)·g² start at zero. The update is θ ← θ - η·m̂ / (√v̂ + ε), where
    m̂ = m/(1-β₁ᵗ) and v̂ = v/(1-β₂ᵗ) at the t-th update. D. P. Kingma, J. Ba, "Adam", ICLR 2015, Algorithm 1.
    """

    kind: Literal["adam"] = "adam"
    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay β₁ of the mean gradient")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="decay β₂ of the mean squared gradient")
    epsilon: float = Field(default=1e-8, gt=0, description="ε, which keeps the divisor above zero")

    def init_state(self, params: Vector) -> OptimiserState:
        zeros = array_namespace(params).zeros_like(params)
        return OptimiserState(0, (zeros, zeros))

    def update_params(self, params: Vector, grad: Vector, state: OptimiserState) -> tuple[Vector, OptimiserState]:
        grad, (mean, square), count = self.add_weight_decay(params, grad), state.slots, state.update_count + 1
        mean = self.beta1 * mean + (1 - self.beta1) * grad
        square = self.beta2 * square + (1 - self.beta2) * (grad * grad)
        scale = array_namespace(square).sqrt(square) / sqrt(1 - self.beta2**count) + self.epsilon
        return params - (self.rate / (1 - self.beta1**count)) * (mean / scale), OptimiserState(count, (mean, square))


AnyOptimiser: TypeAlias = Annotated[Sgd | Momentum | Adam, Field(discriminator="kind")]
