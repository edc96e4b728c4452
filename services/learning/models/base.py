"""Base class of models, which compute outputs, loss and gradient.

All three are functions of one flat parameter vector.
"""

from abc import abstractmethod

import numpy.typing as npt

from services.learning.datasets.base import LearningTask
from services.learning.layout import ParameterLayout
from services.schema.arrays import Array, HostArray, Vector
from services.schema.component import ScenarioComponent


class Model(ScenarioComponent):
    """Base class of models, each the architecture of a neural network.

    The learning task defines the numbers of inputs and outputs. Samples x (B, *task.inputs) and parameters have one
    floating-point type and are on one device; so are results.
    """

    @abstractmethod
    def parameter_layout(self, learning_task: LearningTask) -> ParameterLayout:
        """Return names and shapes of the model's arrays in the parameter vector."""

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:  # noqa: ARG002 - most models fit any task
        """Return why this model cannot fit `learning_task`; None when it can."""
        return None

    @abstractmethod
    def init_parameters(self, learning_task: LearningTask, seed: int, dtype: npt.DTypeLike) -> HostArray:
        """Return the initial parameters in host memory; a pure function of the arguments."""

    @abstractmethod
    def loss_and_grad(self, learning_task: LearningTask, params: Vector, x: Array, y: Array) -> tuple[float, Vector]:
        """Return the mean loss over a batch of samples, and the gradient of this loss.

        The samples are `x`, with targets `y`; the gradient is that with respect to `params`. Both are zero without
        samples, so that an empty share of a batch adds nothing.
        """

    @abstractmethod
    def predict_outputs(self, learning_task: LearningTask, params: Vector, x: Array) -> Array:
        """Return the model's outputs for a batch of samples.

        For B samples the shape is (B, task.outputs). The outputs are class scores before the softmax, or predicted
        values.
        """
