"""Contract of a training phase that the plan of a trial uses."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple, Self

from services.collectives.base import TransferSchedule
from services.strategies.base.exchange_pattern import ExchangePattern
from services.strategies.base.sent_bytes import BytesPerStep
from services.strategies.base.training_quality import TrainingQuality
from services.strategies.cost_model import CostModel, StepTimePrediction

if TYPE_CHECKING:
    from services.strategies.base.strategy import SinglePhaseStrategy


class StrategyFormatStage(NamedTuple):
    """Consecutive steps of a training phase whose messages have equal sizes."""

    end_step: int  # first step after this stage
    strategy: "SinglePhaseStrategy"  # all of whose steps have messages of these sizes


class ExchangePlanning(ABC):
    """Contract of a training phase for the planner: what nodes exchange, how long a step takes, how good training is.

    All of it is known before a run.
    """

    def describe_worker_exchange(self) -> ExchangePattern:
        """Return how workers exchange vectors in this training phase, for example how often.

        The result is the same on every cluster.
        """
        return ExchangePattern()

    def describe_quality(self) -> TrainingQuality:
        """Return how close training is to synchronous training without compression.

        By default, it is unguarded: no bound of the difference is known.
        """
        return TrainingQuality("unguarded")

    def collective_schedule(self, worker_count: int) -> TransferSchedule:  # noqa: ARG002 - only collectives have rounds
        """Return the rounds of transfers by which workers run a collective.

        The result is empty if the strategy has no collective.
        """
        return TransferSchedule()

    @abstractmethod
    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        """Return the payload bytes that each node sends in one step.

        The parameter vector has `parameter_count` entries of the type `dtype`.
        """

    @abstractmethod
    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        """Return the step time on a cluster, predicted by the formula of this strategy."""

    def list_format_stages(self) -> tuple[StrategyFormatStage, ...]:
        """Return the stages of the first steps, in which messages have other sizes than in all later steps."""
        return ()

    def after_format_stages(self) -> Self:
        """Return the strategy of the steps after its first steps, if messages have other sizes in the first steps."""
        return self
