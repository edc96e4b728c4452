"""Base class of models, which compute outputs, loss and gradient.

All three are functions of one flat parameter vector.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

import numpy.typing as npt

from services.learning.datasets.base import LearningTask, TrainTestData
from services.learning.layout import ParameterLayout, VectorRange
from services.learning.objectives import LossName
from services.learning.randomness import DEFAULT_RANDOMNESS, BatchRandomness
from services.learning.sample_pictures import SamplePictures
from services.schema.arrays import Array, HostArray, Vector, array_namespace
from services.schema.component import ScenarioComponent

OutputFunction: TypeAlias = Callable[[Array], Array]  # inputs of a batch -> outputs


class RangeGradient(NamedTuple):
    """Gradient of the loss with respect to one contiguous range of the parameter vector: one array of the model."""

    vector_range: VectorRange
    gradient: Vector  # shape (size of the range,)


class LossAndGradients(NamedTuple):
    """Mean loss over a batch of samples, and the gradient of this loss, array by array."""

    loss: float
    # In the order of the backward pass: ranges from the end of the parameter vector to its start, without gaps. The
    # backward pass runs while the gradients are taken, and each gradient is complete as soon as it is returned.
    gradients: Iterator[RangeGradient]


class ModelFolders(NamedTuple):
    """Folders of the host that nodes need for a model of the user; built-in models need none."""

    code: Path | None = None  # read-only copy of the user's code, named by its digest
    packages: Path | None = None  # installed packages that the code imports and node images lack


class Model(ScenarioComponent):
    """Base class of models, each the architecture of a neural network.

    The learning task defines the shapes of inputs and outputs. Samples x (B, *task.inputs) and parameters are on one
    device, and so are results. Parameters, gradients and outputs have one floating-point type.
    """

    supported_losses: ClassVar[tuple[LossName, ...]] = ("cross_entropy", "mse")  # of tasks that the model can learn
    computes_on_gpu: ClassVar[bool] = True  # whether the model accepts arrays of CuPy
    min_node_memory_bytes: ClassVar[int] = 0  # of a node that imports packages which only this model needs

    @abstractmethod
    def parameter_layout(self, learning_task: LearningTask) -> ParameterLayout:
        """Return names and shapes of the model's arrays in the parameter vector."""

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:  # noqa: ARG002 - most models fit any task
        """Return why this model cannot fit `learning_task`; None when it can.

        Raises:
            OwnCodeError: the model is code of the user, which is wrong.
        """
        return None

    def explain_share_dependence(self) -> str:
        """Return why the gradient over a batch depends on its division over workers, and how to avoid that.

        Return an empty text if it does not. Gradients of workers are weighted by their samples.
        """
        return ""

    @property
    def folders_on_nodes(self) -> ModelFolders:
        """Folders of the host that nodes need to compute with the model."""
        return ModelFolders()

    @abstractmethod
    def init_parameters(self, learning_task: LearningTask, seed: int, dtype: npt.DTypeLike) -> HostArray:
        """Return the initial parameters in host memory; a pure function of the arguments."""

    def draw_inputs_and_targets(
        self,
        learning_task: LearningTask,  # noqa: ARG002 - most models train on the samples as they are
        x: Array,
        y: Array,
        randomness: BatchRandomness,  # noqa: ARG002
    ) -> tuple[Array, Array]:
        """Return inputs and targets of the network for the samples `x` with targets `y`.

        A model that masks or disturbs its samples at random draws from `randomness`. By default, the samples are the
        inputs.
        """
        return x, y

    @abstractmethod
    def compute_gradients(
        self,
        learning_task: LearningTask,
        params: Vector,
        x: Array,
        y: Array,
        randomness: BatchRandomness = DEFAULT_RANDOMNESS,
    ) -> LossAndGradients:
        """Return the mean loss over a batch of samples, and an iterator over the gradients of this loss.

        The samples are `x`, with targets `y`; the gradient is that with respect to `params`. Both are zero without
        samples, so that an empty share of a batch adds nothing.
        """

    def loss_and_grad(
        self,
        learning_task: LearningTask,
        params: Vector,
        x: Array,
        y: Array,
        randomness: BatchRandomness = DEFAULT_RANDOMNESS,
    ) -> tuple[float, Vector]:
        """Return the mean loss over a batch of samples, and the whole gradient in one new vector."""
        loss, gradients = self.compute_gradients(learning_task, params, x, y, randomness)
        vector = array_namespace(params).empty_like(params)
        for vector_range, gradient in gradients:
            vector_range.view(vector)[:] = gradient
        return loss, vector

    @abstractmethod
    def create_output_function(
        self, learning_task: LearningTask, params: Vector, calibration_x: Array
    ) -> OutputFunction:
        """Return the function that computes the model's outputs in evaluation.

        The function takes inputs as `draw_inputs_and_targets` returns them. `calibration_x` are training samples: a
        model with batch normalisation takes mean and variance of its layers from them.
        """

    @abstractmethod
    def forward_flops(self, learning_task: LearningTask) -> Mapping[str, float]:
        """Return the floating-point operations of a forward pass for one sample, by name of the array they use.

        Matrix products and convolutions count, with 2 operations per multiplication and addition. The order is that of
        the layout. A backward pass takes twice as many. Empty if the operations are not known.
        """

    def training_flops(self, learning_task: LearningTask) -> float:
        """Return the floating-point operations of a forward and a backward pass for one sample.

        A backward pass takes twice as many as a forward pass: for the gradients of arrays, and for those of inputs.
        """
        return 3 * sum(self.forward_flops(learning_task).values())

    def create_sample_pictures(self, data: TrainTestData, params: HostArray) -> SamplePictures | None:  # noqa: ARG002 - most models have none
        """Return pictures that show what the model does with these parameters; None if it has no pictures to show.

        They are a pure function of the arguments.
        """
        return None
