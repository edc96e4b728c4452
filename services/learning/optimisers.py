"""How does a gradient change the parameters?

Every rule here is strictly element-wise: a contiguous range of the vector can be updated alone, with its range of the
state, and gives bitwise what the whole update gives there. That is what lets parameter servers hold ranges.
Weight decay is the L2 penalty added to the gradient (g + λ·θ), as in PyTorch's SGD and Adam; not the decoupled AdamW.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.schema.arrays import Vector, namespace
from services.schema.component import Component


@dataclass(frozen=True)
class State:
    """What an optimiser remembers of the past."""

    count: int  # updates so far
    slots: tuple[Vector, ...]  # vectors as long as the parameters; which ones, the optimiser says


class Optimiser(Component):
    """An update rule that never changes what it is given. Parameters θ, gradient g and slots have one length."""

    rate: float = Field(gt=0)  # η, dimensionless
    weight_decay: float = Field(default=0.0, ge=0)  # λ

    @abstractmethod
    def init(self, params: Vector) -> State:
        """The state before the first update of `params`."""

    @abstractmethod
    def step(self, params: Vector, grad: Vector, state: State) -> tuple[Vector, State]:
        """The parameters and the state after one update."""

    def decayed(self, params: Vector, grad: Vector) -> Vector:
        """The gradient of the loss plus λ/2·|θ|²."""
        return grad + self.weight_decay * params if self.weight_decay else grad


class Sgd(Optimiser):
    """Stochastic gradient descent: θ ← θ - η·g. No slots."""

    kind: Literal["sgd"] = "sgd"

    def init(self, params: Vector) -> State:  # noqa: ARG002 - it remembers nothing of them
        return State(0, ())

    def step(self, params: Vector, grad: Vector, state: State) -> tuple[Vector, State]:
        return params - self.rate * self.decayed(params, grad), State(state.count + 1, ())


class Momentum(Optimiser):
    """Heavy ball: v ← μ·v + g, θ ← θ - η·v; with `nesterov`, θ ← θ - η·(g + μ·v). Slot: v, zero at first.

    I. Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013, in PyTorch's
    form: the rate multiplies the velocity when it is applied, not the gradient when it enters.
    """

    kind: Literal["momentum"] = "momentum"
    momentum: float = Field(default=0.9, ge=0, lt=1)  # μ
    nesterov: bool = False

    def init(self, params: Vector) -> State:
        return State(0, (namespace(params).zeros_like(params),))

    def step(self, params: Vector, grad: Vector, state: State) -> tuple[Vector, State]:
        grad, (velocity,) = self.decayed(params, grad), state.slots
        velocity = self.momentum * velocity + grad
        direction = grad + self.momentum * velocity if self.nesterov else velocity
        return params - self.rate * direction, State(state.count + 1, (velocity,))


class Adam(Optimiser):
    """Adam: m ← β₁·m + (1-β₁)·g, v ← β₂·v + (1-β₂)·g², θ ← θ - η·m̂ / (√v̂ + ε). Slots: m and v, zero at first.

    m̂ = m/(1-β₁ᵗ) and v̂ = v/(1-β₂ᵗ) at the t-th update. D. P. Kingma, J. Ba, "Adam", ICLR 2015, Algorithm 1.
    """

    kind: Literal["adam"] = "adam"
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)

    def init(self, params: Vector) -> State:
        zeros = namespace(params).zeros_like(params)
        return State(0, (zeros, zeros))

    def step(self, params: Vector, grad: Vector, state: State) -> tuple[Vector, State]:
        grad, (mean, square), count = self.decayed(params, grad), state.slots, state.count + 1
        mean = self.beta1 * mean + (1 - self.beta1) * grad
        square = self.beta2 * square + (1 - self.beta2) * (grad * grad)
        scale = namespace(square).sqrt(square) / sqrt(1 - self.beta2**count) + self.epsilon
        return params - (self.rate / (1 - self.beta1**count)) * (mean / scale), State(count, (mean, square))


AnyOptimiser: TypeAlias = Annotated[Sgd | Momentum | Adam, Field(discriminator="kind")]
