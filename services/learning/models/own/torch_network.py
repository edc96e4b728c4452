"""Module of PyTorch whose trainable parameters are views of one vector."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from services.learning.layout import ParameterLayout, VectorRange
from services.learning.models.base import RangeGradient
from services.learning.models.own.torch_gradients import GradientWriter
from services.learning.randomness import BatchRandomness
from services.schema.arrays import HostArray

Tensor: TypeAlias = Any  # torch.Tensor: PyTorch is not always installed

MAX_COPIED_PARAMS = 200_000  # copying more takes as long as setting a view for each parameter


class TorchNetwork:
    """A module, and the places of its trainable parameters in the parameter vector.

    Parameters that `requires_grad` excludes, and buffers, are no part of the vector. An object is used by one thread.
    """

    def __init__(self, torch: Any, module: Any, dtype: str) -> None:
        """Create the network.

        Args:
            torch: the package.
            module: the user's `torch.nn.Module`.
            dtype: name of the type of parameters and buffers, as in NumPy.
        """
        self.torch, self.module = torch, module.to(getattr(torch, dtype))
        named = [(name, param) for name, param in module.named_parameters() if param.requires_grad]
        self.layout = ParameterLayout(arrays=tuple((name, tuple(param.shape)) for name, param in named))
        ranges = self.layout.vector_ranges
        self._params: list[tuple[VectorRange, Any]] = [(ranges[name], param) for name, param in named]
        self._sizes = [vector_range.size for vector_range, _ in self._params]
        self._number_type = np.dtype(dtype)
        self._gradient_writer = GradientWriter(self._params)
        self._copied_params = self._create_copy() if sum(self._sizes) <= MAX_COPIED_PARAMS else None

    def _create_copy(self) -> HostArray:
        """Make the parameters views of a new vector of the network, and return this vector."""
        with self.torch.no_grad():
            vector: HostArray = self.torch.cat([param.reshape(-1) for _, param in self._params]).numpy()
        self._set_views(vector)
        return vector

    def initial_params(self) -> HostArray:
        """Return the parameters that the module has drawn, in one new vector."""
        parts = [param.detach().reshape(-1) for _, param in self._params]
        return np.array(self.torch.cat(parts).numpy())

    def set_params(self, params: HostArray) -> None:
        """Give the module's parameters the values of a vector.

        A long vector is not copied: the parameters become views of it, which the module does not change. A short one is
        copied, which takes less time than a new view for each parameter.
        """
        if self._copied_params is not None:
            np.copyto(self._copied_params, params)
        else:
            self._set_views(params)
        for _, param in self._params:
            param.grad = None

    def _set_views(self, params: HostArray) -> None:
        parts = self.as_tensor(params).split(self._sizes)  # one call instead of a slice per parameter
        for (_, param), part in zip(self._params, parts, strict=True):
            param.data = part.view(param.shape)

    def as_tensor(self, array: HostArray) -> Tensor:
        """Return a tensor that shares the memory of an array; read-only arrays are copied."""
        return self.torch.from_numpy(array if array.flags.writeable else array.copy())

    def compute_training_outputs(self, x: HostArray, randomness: BatchRandomness) -> Tensor:
        """Return the module's outputs in a training step, of which a loss can be computed."""
        self.torch.default_generator.manual_seed(
            randomness.create_seed()
        )  # that of the CPU; torch.manual_seed takes 0.3 ms
        if not self.module.training:
            self.module.train()
        return self.module(self.as_tensor(x))

    def list_gradients(self, loss: Tensor) -> Iterator[RangeGradient]:
        """Yield the gradients of a loss from the end of the vector to its start, after the whole backward pass.

        The gradient of a parameter on which the loss does not depend is zero.
        """
        loss.backward()
        for vector_range, param in reversed(self._params):
            gradient = self.torch.zeros_like(param.data) if param.grad is None else param.grad
            yield RangeGradient(vector_range, gradient.reshape(-1).numpy())

    def compute_gradient(self, loss: Tensor) -> HostArray:
        """Return the gradient of a loss in one new vector; each part is written as soon as it is complete.

        The gradient of a parameter on which the loss does not depend is zero.
        """
        gradient: HostArray = np.empty(self.layout.parameter_count, self._number_type)
        self._gradient_writer.write_gradients(loss, gradient)
        return gradient

    def compute_outputs(self, params: HostArray, inputs: HostArray) -> HostArray:
        """Return the module's outputs in evaluation; results that are no tensor are returned as they are."""
        self.set_params(params)
        self.module.eval()
        with self.torch.no_grad():
            outputs = self.module(self.as_tensor(inputs))
        array: HostArray = outputs.numpy() if self.torch.is_tensor(outputs) else outputs
        return array

    def recompute_statistics(self, params: HostArray, x: HostArray) -> None:
        """Set mean and variance of batch normalisations to those of the samples x, as a training pass would see them.

        All other layers work as in evaluation.
        """
        self.set_params(params)
        self.module.eval()
        layers = [layer for layer in self.module.modules() if is_batch_normalisation(self.torch, layer)]
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the statistics are then the mean over all passes: here, those of one pass
            layer.train()
        with self.torch.no_grad():
            self.module(self.as_tensor(x))
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

    def find_changing_buffers(self, x: HostArray) -> tuple[list[str], list[str]]:
        """Return the names of buffers that a training pass changes: of batch normalisations, and all others."""
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        self.module.train()
        with self.torch.no_grad():
            self.module(self.as_tensor(x))
        changed = [
            name
            for name, buffer in self.module.named_buffers()
            if name not in before or not self.torch.equal(buffer, before[name])
        ]
        normalisations = {
            name for name, layer in self.module.named_modules() if is_batch_normalisation(self.torch, layer)
        }
        statistics = [name for name in changed if name.rpartition(".")[0] in normalisations]
        return statistics, [name for name in changed if name not in statistics]


def is_batch_normalisation(torch: Any, layer: Any) -> bool:
    """Return whether a layer is a batch normalisation that records mean and variance."""
    return isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and layer.running_mean is not None  # noqa: SLF001 - the base class of all
