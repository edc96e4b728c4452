"""Models that consist of layers: forward pass, loss, and backpropagation."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import LearningTask
from services.learning.layers.base import GradientGenerator, Layer, PassContext
from services.learning.layout import ParameterLayout, flatten_arrays
from services.learning.models.base import LossAndGradients, Model, OutputFunction, RangeGradient
from services.learning.objectives import OBJECTIVES
from services.learning.randomness import DEFAULT_RANDOMNESS, BatchRandomness
from services.schema.arrays import Array, HostArray, Vector, array_namespace


class NetworkModel(Model):
    """A model that consists of layers."""

    @abstractmethod
    def build_network(self, learning_task: LearningTask) -> Layer:
        """Return the network: one layer, usually a chain, that maps inputs to outputs."""

    @property
    def frozen_arrays(self) -> Mapping[str, HostArray]:
        """Arrays that layers read, but that are not trained and no part of the parameter vector, by name."""
        return {}

    def parameter_layout(self, learning_task: LearningTask) -> ParameterLayout:
        return _layout_of(self, learning_task)

    def init_parameters(self, learning_task: LearningTask, seed: int, dtype: npt.DTypeLike) -> HostArray:
        rng = np.random.Generator(np.random.PCG64(seed))
        arrays = _network_of(self, learning_task).init_arrays(rng)
        return np.asarray(flatten_arrays(list(arrays.values())), dtype)

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
            return LossAndGradients(0.0, _zero_gradients(layout, params))
        inputs, targets = self.draw_inputs_and_targets(learning_task, x, y, randomness)
        network, context = _network_of(self, learning_task), PassContext(is_training=True, randomness=randomness)
        outputs, backward = network.forward(_named_arrays(self, layout, params), inputs, context)
        loss, output_grad = OBJECTIVES[learning_task.loss].loss_and_output_grad(outputs, targets)
        return LossAndGradients(float(loss), _list_by_range(layout, backward(output_grad, needs_input_grad=False)))

    def create_output_function(
        self, learning_task: LearningTask, params: Vector, calibration_x: Array
    ) -> OutputFunction:
        network, layout = _network_of(self, learning_task), self.parameter_layout(learning_task)
        arrays = _named_arrays(self, layout, params)
        calibration = PassContext(is_training=True)
        if network.needs_calibration:
            network.forward(arrays, calibration_x, calibration)
        context = PassContext(is_training=False, fixed_statistics=calibration.recorded_statistics)
        return lambda inputs: network.forward(arrays, inputs, context)[0]

    def forward_flops(self, learning_task: LearningTask) -> Mapping[str, float]:
        return _network_of(self, learning_task).measure_cost(learning_task.inputs).flops_by_array


@cache  # every step needs the same layers; a model and a task are values
def _network_of(model: NetworkModel, learning_task: LearningTask) -> Layer:
    return model.build_network(learning_task)


@cache
def _layout_of(model: NetworkModel, learning_task: LearningTask) -> ParameterLayout:
    return ParameterLayout(arrays=tuple(_network_of(model, learning_task).parameter_shapes().items()))


def _named_arrays(model: NetworkModel, layout: ParameterLayout, params: Vector) -> dict[str, Array]:
    """Return all arrays that the layers of a model read, by name."""
    return layout.unpack(params) | _frozen_arrays_on_device(model, array_namespace(params), params.dtype)


@cache  # copied to the device once
def _frozen_arrays_on_device(model: NetworkModel, xp: Any, dtype: npt.DTypeLike) -> dict[str, Array]:
    """Return the frozen arrays of a model in the memory and with the type of its parameters."""
    return {name: xp.asarray(array, dtype) for name, array in model.frozen_arrays.items()}


def _zero_gradients(layout: ParameterLayout, params: Vector) -> Iterator[RangeGradient]:
    zeros = array_namespace(params).zeros_like(params)
    return (RangeGradient(part, part.view(zeros)) for part in reversed(layout.vector_ranges.values()))


def _list_by_range(layout: ParameterLayout, gradients: GradientGenerator) -> Iterator[RangeGradient]:
    ranges = layout.vector_ranges
    return (RangeGradient(ranges[name], gradient.reshape(-1)) for name, gradient in gradients)
