"""No overlap: the exchange begins when the whole gradient has been computed."""

from typing import Literal, Self

from services.collectives import NetworkAndModelSizes
from services.strategies.cost_model import StepTimePrediction
from services.strategies.overlap.base import BucketPart, GradientBucket, Overlap, PredictExchange


class NoOverlap(Overlap):
    """Exchange of the whole gradient after the backward pass."""

    kind: Literal["none"] = "none"

    @property
    def gradient_buckets(self) -> tuple[GradientBucket, ...]:
        return ()

    @property
    def exchange_order(self) -> tuple[BucketPart, ...]:
        return ()

    def resolve(self, sizes: NetworkAndModelSizes, predict_exchange: PredictExchange) -> Self:  # noqa: ARG002 - nothing to choose
        return self

    def predict_step_time(
        self,
        whole_vector: StepTimePrediction,
        predict_exchange: PredictExchange,  # noqa: ARG002 - the whole vector is exchanged
    ) -> StepTimePrediction:
        return whole_vector
