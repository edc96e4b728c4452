"""Base class of layer-wise optimisers, which scale the step of each array of the model by norms of that array."""

from abc import abstractmethod
from collections.abc import Sequence

from pydantic import Field

from services.learning.layout import ArrayRange
from services.learning.optimisers.base import Optimiser, OptimiserState
from services.schema.arrays import Array, Vector, array_namespace


class LayerWiseOptimiser(Optimiser):
    """Base class of optimisers that scale the step of each array of the model by norms of that array.

    An update needs the whole of each array, so a vector can't be updated range by range. By default, arrays with one
    axis (biases, and scales and shifts of normalisations) are neither adapted nor decayed, as in the code that the
    authors of LAMB published for BERT and in MLPerf's reference of LARS. The pseudo-code of both papers treats all
    arrays equally, as `adapt_one_axis` does.
    """

    adapt_one_axis: bool = Field(
        default=False,
        description="whether norms scale the steps of arrays with one axis (biases, scales of normalisations), and "
        "whether these arrays decay",
    )

    @property
    def is_element_wise(self) -> bool:
        return False

    def update_params(
        self,
        params: Vector,
        grad: Vector,
        state: OptimiserState,
        arrays: Sequence[ArrayRange] = (),
        rate_factor: float = 1.0,
    ) -> tuple[Vector, OptimiserState]:
        covered_entries = sum(array.vector_range.size for array in arrays)
        if covered_entries != params.size:
            raise ValueError(f"{self.kind} needs all arrays; these have {covered_entries} of {params.size} entries")
        return self.update_arrays(params, grad, state, arrays, self.rate * rate_factor)

    @abstractmethod
    def update_arrays(
        self, params: Vector, grad: Vector, state: OptimiserState, arrays: Sequence[ArrayRange], rate: float
    ) -> tuple[Vector, OptimiserState]:
        """Return the parameters and the state after one update with the learning rate `rate`."""

    def is_adapted(self, array: ArrayRange) -> bool:
        """Return whether norms scale the step of an array, and whether the array decays."""
        return array.axis_count > 1 or self.adapt_one_axis


def divide_norms(numerator: Array, denominator: Array) -> Array:
    """Return the quotient of two norms, or 1 if one of them is zero.

    Norms and quotient are arrays of shape (), so that a device computes without waiting for the host.
    """
    is_zero = (numerator == 0) | (denominator == 0)
    return array_namespace(denominator).where(is_zero, 1.0, numerator / (denominator + is_zero))
