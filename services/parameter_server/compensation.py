"""Delay compensation: correction of gradients computed from old parameters.

The correction accounts for the updates made after the worker read the parameters. DC-ASGD: S. Zheng et al.,
"Asynchronous stochastic gradient descent with delay compensation", ICML 2017. The gradient gets the first term of its
Taylor series, g + λ·g⊙g⊙(w - w_bak). w are the server's parameters, w_bak are the parameters that the worker has read,
and g⊙g approximates the diagonal of the Hessian. The correction is element-wise, so each range of the vector can be
compensated alone.
"""

from abc import abstractmethod
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from services.schema.arrays import Vector, array_namespace
from services.schema.component import ScenarioComponent

CompensationState: TypeAlias = Any  # what a compensation keeps between two gradients; None for one without state


class DelayCompensation(ScenarioComponent):
    """Base class of delay compensation: methods that correct a stale gradient.

    All vectors have the same length, shape (n,).
    """

    @abstractmethod
    def init_state(self, params: Vector) -> CompensationState:
        """Return the initial state of the delay compensation, before the first gradient."""

    @abstractmethod
    def compensate(
        self, gradient: Vector, params: Vector, stale_params: Vector, state: CompensationState
    ) -> tuple[Vector, CompensationState]:
        """Return a stale gradient corrected for delay, and the compensation's next state.

        The result estimates the gradient at the server's current parameters.

        Args:
            gradient: computed by the worker from older parameters.
            params: the server's current parameters.
            stale_params: the parameters from which the worker computed the gradient.
            state: of the compensation, before this gradient.
        """

    @property
    def needs_stale_params(self) -> bool:
        """Whether a server must keep a copy of the parameters that each worker has read last."""
        return True


class NoCompensation(DelayCompensation):
    """No compensation: gradients stay unchanged."""

    kind: Literal["none"] = "none"

    def init_state(self, params: Vector) -> CompensationState:
        """Return None: without compensation there is no state."""

    def compensate(
        self,
        gradient: Vector,
        params: Vector,  # noqa: ARG002 - the gradient stays unchanged
        stale_params: Vector,  # noqa: ARG002 - the gradient stays unchanged
        state: CompensationState,
    ) -> tuple[Vector, CompensationState]:
        return gradient, state

    @property
    def needs_stale_params(self) -> bool:
        return False


class DcAsgd(DelayCompensation):
    """DC-ASGD-c (Zheng et al., 2017), with a constant factor λ.

    With λ = 0 it equals asynchronous SGD bitwise.
    """

    kind: Literal["dc_asgd"] = "dc_asgd"
    strength: float = Field(default=0.04, ge=0, description="factor λ of the correction")

    def init_state(self, params: Vector) -> CompensationState:
        """Return None: compensation with a constant factor λ has no state."""

    def compensate(
        self, gradient: Vector, params: Vector, stale_params: Vector, state: CompensationState
    ) -> tuple[Vector, CompensationState]:
        return gradient + self.strength * gradient * gradient * (params - stale_params), state


class AdaptiveDcAsgd(DelayCompensation):
    """Delay compensation DC-ASGD-a with an adaptive factor λ (Zheng et al., 2017).

    λ = λ₀/√(s + ε) with constants λ₀ and ε, and a running mean s of squared gradients. The mean is s ← m·s + (1-m)·g⊙g,
    zero at first.
    """

    kind: Literal["dc_asgd_adaptive"] = "dc_asgd_adaptive"
    strength: float = Field(default=2.0, ge=0, description="factor λ₀ of the correction")
    momentum: float = Field(default=0.95, ge=0, lt=1, description="momentum m of the running mean of g⊙g")
    epsilon: float = Field(default=1e-7, gt=0, description="ε, which avoids division by zero")

    def init_state(self, params: Vector) -> Vector:
        return array_namespace(params).zeros_like(params)

    def compensate(
        self, gradient: Vector, params: Vector, stale_params: Vector, state: CompensationState
    ) -> tuple[Vector, CompensationState]:
        square = gradient * gradient
        mean_square = self.momentum * state + (1 - self.momentum) * square
        strength = self.strength / array_namespace(mean_square).sqrt(mean_square + self.epsilon)
        return gradient + strength * square * (params - stale_params), mean_square


AnyDelayCompensation: TypeAlias = Annotated[NoCompensation | DcAsgd | AdaptiveDcAsgd, Field(discriminator="kind")]
