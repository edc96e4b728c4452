"""How does a server turn a gradient of old parameters into one of those that it holds?

DC-ASGD: S. Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017. The gradient
gets the first term of its Taylor series, g + λ·g⊙g⊙(w - w_bak), where w_bak are the parameters that the worker had read
and g⊙g stands for the diagonal of the Hessian. Element-wise, so ranges of the vector can be compensated alone.
"""

from abc import abstractmethod
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from services.schema.arrays import Vector, namespace
from services.schema.component import Component

Memory: TypeAlias = Any  # what a compensation keeps between two gradients; None if nothing


class Compensation(Component):
    """Corrects gradients before the optimiser sees them; vectors have one length, (n,)."""

    @abstractmethod
    def init(self, params: Vector) -> Memory:
        """What it remembers before the first gradient."""

    @abstractmethod
    def compensate(self, gradient: Vector, params: Vector, read: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """The gradient of `params`, guessed from that of the parameters that were `read`; and what to remember."""

    @property
    def needs_what_was_read(self) -> bool:
        """Whether a server must keep the parameters that each worker has read: n more copies."""
        return True


class Uncompensated(Compensation):
    """Gradients as they come: the zero of the family."""

    kind: Literal["none"] = "none"

    def init(self, params: Vector) -> Memory:
        """No memory."""

    def compensate(
        self,
        gradient: Vector,
        params: Vector,  # noqa: ARG002 - it makes no difference
        read: Vector,  # noqa: ARG002 - it makes no difference
        memory: Memory,
    ) -> tuple[Vector, Memory]:
        return gradient, memory

    @property
    def needs_what_was_read(self) -> bool:
        return False


class DcAsgd(Compensation):
    """DC-ASGD with a constant λ, in the paper DC-ASGD-c; 0 is asynchronous SGD to the last bit."""

    kind: Literal["dc_asgd"] = "dc_asgd"
    strength: float = Field(default=0.04, ge=0, description="λ₀")

    def init(self, params: Vector) -> Memory:
        """No memory."""

    def compensate(self, gradient: Vector, params: Vector, read: Vector, memory: Memory) -> tuple[Vector, Memory]:
        return gradient + self.strength * gradient * gradient * (params - read), memory


class AdaptiveDcAsgd(Compensation):
    """DC-ASGD with λ = λ₀/√(s + ε), in the paper DC-ASGD-a; s ← m·s + (1-m)·g⊙g is what it remembers, zero at first."""

    kind: Literal["dc_asgd_adaptive"] = "dc_asgd_adaptive"
    strength: float = Field(default=2.0, ge=0, description="λ₀")
    momentum: float = Field(default=0.95, ge=0, lt=1, description="m")
    epsilon: float = Field(default=1e-7, gt=0, description="ε")

    def init(self, params: Vector) -> Vector:
        return namespace(params).zeros_like(params)

    def compensate(self, gradient: Vector, params: Vector, read: Vector, memory: Memory) -> tuple[Vector, Memory]:
        square = gradient * gradient
        mean = self.momentum * memory + (1 - self.momentum) * square
        strength = self.strength / namespace(mean).sqrt(mean + self.epsilon)
        return gradient + strength * square * (params - read), mean


AnyCompensation: TypeAlias = Annotated[Uncompensated | DcAsgd | AdaptiveDcAsgd, Field(discriminator="kind")]
