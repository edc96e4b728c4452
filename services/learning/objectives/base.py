"""Base class of objectives: a loss between outputs and targets, and the quality metrics of outputs."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

from services.schema.arrays import Array


class QualityMetric(NamedTuple):
    """Properties of a quality metric: the direction in which it improves, and its best value."""

    bound_key: Literal["at_least", "at_most"]  # key of a quality target that holds the bound
    best_value: float  # no model does better

    def is_reachable_bound(self, bound: float) -> bool:
        """Return whether a model can reach the value `bound` of the metric.

        An accuracy or r2 of 1 counts as reachable, an error of 0 does not.
        """
        return bound <= self.best_value if self.bound_key == "at_least" else bound > self.best_value


class Objective(ABC):
    """Loss that training minimises, with its gradient, and the quality metrics of outputs.

    B samples, at least one. A loss is the mean over the samples of a loss per sample, so that gradients over unequal
    shares of a batch can be averaged by their numbers of samples.
    """

    metrics: ClassVar[dict[str, QualityMetric]]  # by name; each objective also has the metric `loss`

    @abstractmethod
    def loss_and_output_grad(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Return the mean loss, shape (), and its gradient with respect to the outputs, of the shape of `outputs`."""

    @abstractmethod
    def measure_quality(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return the quality metrics of the outputs by name, without the loss."""
