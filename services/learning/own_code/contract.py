"""Contract of a model that the user has written with NumPy."""

from collections.abc import Mapping
from typing import Any, Protocol

from services.learning.layout import Shape
from services.schema.arrays import Array


class OwnModel(Protocol):
    """Model of the user: a class with these methods, which need not inherit from anything.

    The constructor gets the shape of one sample, the number of outputs, and the `arguments` of the scenario:
    `__init__(self, inputs, outputs, **arguments)`. An object keeps no state between calls. Samples x (B, *inputs) and
    parameters are arrays of NumPy, or of CuPy on a GPU; methods do not change them. A class may also have a method
    `forward_flops(self) -> float` with the floating-point operations of a forward pass for one sample.
    """

    def parameter_shapes(self) -> Mapping[str, Shape]:
        """Return the shapes of the parameter arrays, by name, in the order of the forward pass."""
        ...

    def init_parameters(self, rng: Any) -> Mapping[str, Array]:
        """Return the initial parameters in host memory; all random numbers come from NumPy's generator `rng`."""
        ...

    def loss_and_gradients(
        self, params: Mapping[str, Array], x: Array, y: Array, rng: Any
    ) -> tuple[float, Mapping[str, Array]]:
        """Return the mean loss over the samples x with targets y, and its gradient for each parameter array.

        Random numbers, such as dropout masks, come from `rng`, a generator of the library of the arrays.
        """
        ...

    def outputs(self, params: Mapping[str, Array], x: Array) -> Array:
        """Return the outputs for evaluation: one row per sample; scores before the softmax for classes and tokens."""
        ...
