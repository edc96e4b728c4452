"""What is a model? A function of one flat vector of parameters, with the gradient of its loss."""

from abc import abstractmethod

import numpy.typing as npt

from services.learning.datasets.base import Task
from services.learning.layout import Layout
from services.schema.arrays import Array, HostArray, Vector
from services.schema.component import Component

BACKWARD_PER_FORWARD = 2  # gradients of inputs and of weights cost one product each where the forward pass costs one


class Model(Component):
    """A shape of network; the task says how many inputs and outputs it has.

    Samples x (B, *task.inputs) and parameters have one floating-point type and live on one device; results do too.
    """

    @abstractmethod
    def layout(self, task: Task) -> Layout:
        """Names and shapes of the arrays in the vector of parameters."""

    def refusal(self, task: Task) -> str | None:  # noqa: ARG002 - most models take any task
        """Why this model cannot fit `task`; None when it can."""
        return None

    @abstractmethod
    def init(self, task: Task, seed: int, dtype: npt.DTypeLike) -> HostArray:
        """The first parameters, in the host's memory: a pure function of its arguments."""

    @abstractmethod
    def loss_and_grad(self, task: Task, params: Vector, x: Array, y: Array) -> tuple[float, Vector]:
        """The mean loss over the samples, and its gradient; both zero without samples: an empty share adds nothing."""

    @abstractmethod
    def predict(self, task: Task, params: Vector, x: Array) -> Array:
        """Outputs (B, task.outputs): scores before the softmax for classes, numbers for regression."""

    @abstractmethod
    def forward_flops(self, task: Task) -> int:
        """Floating-point operations of the products of one sample's forward pass; a multiply-add counts two."""

    def flops_per_sample(self, task: Task) -> int:
        """Floating-point operations of one sample's forward and backward pass, by the usual rule 1 : 2."""
        return (1 + BACKWARD_PER_FORWARD) * self.forward_flops(task)
