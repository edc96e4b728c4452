"""Base class of overlaps, and the buckets of a gradient."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Self, TypeAlias

from services.collectives import NetworkAndModelSizes
from services.learning.layout import VectorRange
from services.schema.component import FrozenRecord, ScenarioComponent
from services.strategies.cost_model import StepTimePrediction

PredictExchange: TypeAlias = Callable[[int], StepTimePrediction]  # entries of a vector -> step that exchanges it


class GradientBucket(FrozenRecord):
    """Range of the gradient that is exchanged alone, as soon as the backward pass has computed it."""

    start: int
    stop: int
    backward_share: float  # of the operations of the backward pass: for this bucket, after those of the bucket before

    @property
    def vector_range(self) -> VectorRange:
        """Range of the gradient vector."""
        return VectorRange(self.start, self.stop)


class Overlap(ScenarioComponent):
    """Base class of ways to overlap a gradient exchange with the backward pass."""

    @property
    @abstractmethod
    def gradient_buckets(self) -> tuple[GradientBucket, ...]:
        """Buckets of the gradient, in the order of the backward pass; empty without overlap."""

    @abstractmethod
    def resolve(self, sizes: NetworkAndModelSizes, predict_exchange: PredictExchange) -> Self:
        """Return this overlap with the buckets of a model.

        Args:
            sizes: array sizes and operations of the model.
            predict_exchange: returns the predicted step that exchanges a vector of the given number of entries.
        """

    @abstractmethod
    def predict_step_time(
        self, whole_vector: StepTimePrediction, predict_exchange: PredictExchange
    ) -> StepTimePrediction:
        """Return the predicted step time with this overlap.

        Args:
            whole_vector: predicted step that exchanges the whole vector after the backward pass.
            predict_exchange: as for `resolve`.
        """
