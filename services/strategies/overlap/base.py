"""Base class of overlaps, and the parts in which a gradient is exchanged."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Self, TypeAlias

from services.collectives import NetworkAndModelSizes
from services.learning.layout import VectorRange
from services.schema.component import FrozenRecord, ScenarioComponent
from services.strategies.cost_model import StepTimePrediction

PredictExchange: TypeAlias = Callable[[int], StepTimePrediction]  # entries of a vector -> step that exchanges it


class GradientBucket(FrozenRecord):
    """Range of the gradient that is ready for its exchange as soon as the backward pass has computed it."""

    start: int
    stop: int
    backward_share: float  # of the operations of the backward pass: for this bucket, after those of the bucket before
    forward_share: float  # of the operations of a forward pass that use this range of the parameters
    arrays: tuple[str, ...] = ()  # names of the model's arrays in this range; empty: not known

    @property
    def vector_range(self) -> VectorRange:
        """Range of the gradient vector."""
        return VectorRange(self.start, self.stop)


class BucketPart(FrozenRecord):
    """Range of a bucket that is summed by one all-reduce."""

    bucket: int  # number of the bucket, in the order of the backward pass
    start: int
    stop: int

    @property
    def vector_range(self) -> VectorRange:
        """Range of the gradient vector."""
        return VectorRange(self.start, self.stop)


class Overlap(ScenarioComponent):
    """Base class of ways to overlap a gradient exchange with the compute of a worker."""

    @property
    @abstractmethod
    def gradient_buckets(self) -> tuple[GradientBucket, ...]:
        """Buckets of the gradient, in the order of the backward pass; empty without overlap."""

    @property
    @abstractmethod
    def exchange_order(self) -> tuple[BucketPart, ...]:
        """Parts of all buckets, in the order in which all workers exchange them; empty without overlap."""

    @property
    def begins_next_step_early(self) -> bool:
        """Whether a layer begins its next forward pass as soon as its own parameters have been exchanged."""
        return False

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
