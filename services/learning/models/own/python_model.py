"""Model of the user that computes with NumPy or CuPy."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.datasets.base import LearningTask
from services.learning.layout import ParameterLayout
from services.learning.models.base import LossAndGradients, OutputFunction, RangeGradient
from services.learning.models.own.base import UserModel
from services.learning.models.own.python_checks import (
    check_arrays,
    check_gradient_along_random_direction,
    check_methods,
    check_shapes,
)
from services.learning.models.own.result_checks import FunctionNames, ResultChecks
from services.learning.objectives import LossName
from services.learning.own_code import OwnModel, explain_own_errors
from services.learning.randomness import DEFAULT_RANDOMNESS, BatchRandomness
from services.schema.arrays import Array, HostArray, Vector, array_namespace

FUNCTION_NAMES = FunctionNames(parameters="init_parameters", loss="loss_and_gradients", outputs="outputs")


class PythonModel(UserModel):
    """Model of the user: a class that computes loss and gradients with NumPy or CuPy, see `OwnModel`."""

    kind: Literal["python"] = "python"
    check_gradient: bool = Field(
        default=True,
        description="before anything starts, compare the gradient with finite differences of the loss along a random "
        "direction",
    )
    supported_losses: ClassVar[tuple[LossName, ...]] = ("cross_entropy", "mse", "next_token")

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:
        _check_once(self, learning_task)
        return None

    def parameter_layout(self, learning_task: LearningTask) -> ParameterLayout:
        return _layout_of(self, learning_task)

    def init_parameters(self, learning_task: LearningTask, seed: int, dtype: npt.DTypeLike) -> HostArray:
        layout, rng = self.parameter_layout(learning_task), np.random.Generator(np.random.PCG64(seed))
        with explain_own_errors(self.module, "init_parameters"):
            arrays = dict(_object_of(self, learning_task).init_parameters(rng))
        check_arrays(self.module, "init_parameters", arrays, layout)
        return np.asarray(layout.pack({name: np.asarray(array) for name, array in arrays.items()}), dtype)

    def compute_gradients(
        self,
        learning_task: LearningTask,
        params: Vector,
        x: Array,
        y: Array,
        randomness: BatchRandomness = DEFAULT_RANDOMNESS,
    ) -> LossAndGradients:
        layout = self.parameter_layout(learning_task)
        if len(x) == 0:
            zeros = layout.unpack(array_namespace(params).zeros_like(params))
            return LossAndGradients(0.0, _list_from_end(layout, zeros))
        arrays, rng = layout.unpack(params), randomness.create_generator(params)
        with explain_own_errors(self.module, "loss_and_gradients"):
            loss, gradients = _object_of(self, learning_task).loss_and_gradients(arrays, x, y, rng)
            loss = float(loss)
        check_arrays(self.module, "loss_and_gradients", gradients, layout, params.dtype)
        return LossAndGradients(loss, _list_from_end(layout, gradients))

    def create_output_function(
        self,
        learning_task: LearningTask,
        params: Vector,
        calibration_x: Array,  # noqa: ARG002 - the user's class has no statistics of batches
    ) -> OutputFunction:
        arrays, own_model = self.parameter_layout(learning_task).unpack(params), _object_of(self, learning_task)

        def compute_outputs(inputs: Array) -> Array:
            with explain_own_errors(self.module, "outputs"):
                return own_model.outputs(arrays, inputs)

        return compute_outputs

    def forward_flops(self, learning_task: LearningTask) -> Mapping[str, float]:
        """Return the operations that the user's class states, in equal parts per parameter."""
        own_model, layout = _object_of(self, learning_task), self.parameter_layout(learning_task)
        if not hasattr(own_model, "forward_flops"):
            return {}
        with explain_own_errors(self.module, "forward_flops"):
            flops = float(own_model.forward_flops())
        ranges = layout.vector_ranges.items()
        return {name: flops * vector_range.size / layout.parameter_count for name, vector_range in ranges}


@cache  # every step needs the same object; a model and a task are values
def _object_of(model: PythonModel, learning_task: LearningTask) -> OwnModel:
    """Return the object of the user's class."""
    own_model = model.create_object(learning_task.inputs, learning_task.outputs)
    check_methods(model.module, own_model)
    return own_model  # type: ignore[no-any-return] # the methods have been checked


@cache
def _layout_of(model: PythonModel, learning_task: LearningTask) -> ParameterLayout:
    own_model = _object_of(model, learning_task)
    with explain_own_errors(model.module, "parameter_shapes"):
        shapes = check_shapes(model.module, own_model.parameter_shapes())
    return ParameterLayout(arrays=tuple(shapes.items()))


@cache  # a sweep has many trials with the same model
def _check_once(model: PythonModel, learning_task: LearningTask) -> None:
    """Check the user's class with a few samples in both number formats.

    Raises:
        OwnCodeError: the class can't be imported, or its results are wrong.
    """
    with redirect_stdout(sys.stderr):  # commands of Ensayo print their results to the standard output
        for dtype in ("float32", "float64"):
            checks = ResultChecks(model, model.module, learning_task, dtype, FUNCTION_NAMES)
            checks.check_outputs()
            checks.check_loss()
            checks.check_mean()
        if model.check_gradient:
            check_gradient_along_random_direction(model, model.module, learning_task)


def _list_from_end(layout: ParameterLayout, gradients: Mapping[str, Any]) -> Iterator[RangeGradient]:
    ranges = reversed(layout.vector_ranges.items())
    return (RangeGradient(vector_range, gradients[name].reshape(-1)) for name, vector_range in ranges)
