"""Step time that the closed form of a strategy predicts."""

from collections.abc import Sequence
from itertools import accumulate

from services.schema.component import FrozenRecord
from services.strategies.cost_model.exchange_schedule import ExchangeSchedule

MAX_NEGLECTED_SHARE = 0.05  # of a step: a closed form may leave out effects that change the step time by less
EARLY_EXCHANGE_REASON = "fast workers already exchange while slow workers still compute"


class StepTimePrediction(FrozenRecord):
    """Predicted step time, in virtual seconds.

    The prediction consists of compute time, exchange time, and the formula.
    """

    compute_s: float
    exchange_s: float
    formula: str
    steps_s: tuple[float, ...] = ()  # step time of each worker by rank in asynchronous training; else empty
    counted: float = 1.0  # share of the computed gradients that go into updates; the rest is dropped
    inapplicable_reason: str = ""  # why the formula does not describe the step; empty: it does
    epoch_start_delay_s: float = 0.0  # by which the first exchange after an evaluation ends later than the others
    end_delay_s: float = 0.0  # by which the exchanges at the end of the budget take longer than the others
    evaluation_exchange_s: float = 0.0  # of the exchange that averages the parameters before an evaluation

    @property
    def step_s(self) -> float:
        """Predicted duration of a whole step, in seconds.

        In asynchronous training, it is the duration of a step of the slowest worker.
        """
        return self.compute_s + self.exchange_s

    @property
    def median_step_s(self) -> float | None:
        """Predicted median of the step time over all steps of all workers.

        The value is None if it would be 0 s, or if the formula does not describe the step. A worker that is twice as
        fast does twice as many steps.
        """
        if self.inapplicable_reason:
            return None
        if not all(self.steps_s or (0.0,)):
            return self.step_s or None
        ascending_s = sorted(self.steps_s)
        cumulative_rates = list(accumulate(1 / step_s for step_s in ascending_s))
        half = cumulative_rates[-1] / 2
        return next(step_s for step_s, rate in zip(ascending_s, cumulative_rates, strict=True) if rate >= half)

    @property
    def mean_step_s(self) -> float | None:
        """Predicted mean of the step time over all steps of all workers.

        None instead of 0 if steps take no time, or if the formula does not describe the step.
        """
        if self.inapplicable_reason:
            return None
        if not all(self.steps_s or (0.0,)):
            return self.step_s or None
        return len(self.steps_s) / sum(1 / step_s for step_s in self.steps_s)

    def predict_training_s(
        self,
        step_count: int,
        evaluation_count: float,
        schedule: ExchangeSchedule,
        mean_samples_by_worker: Sequence[float],
    ) -> float:
        """Return the predicted seconds of a whole training phase, given its number of steps.

        Return 0 if steps take no time. In asynchronous training a fast worker computes more than its share.

        Args:
            step_count: number of steps of the phase.
            evaluation_count: number of evaluations of the phase, after each of which all workers start together.
            schedule: steps after which workers exchange; the last exchange may follow fewer steps.
            mean_samples_by_worker: mean number of samples that a worker computes in a step, by rank.
        """
        if not self.steps_s:
            exchange_count = schedule.count_exchanges(step_count, ends_with_exchange=True)
            steps_of_exchanges = exchange_count * schedule.mean_steps_per_exchange
            seconds = step_count * self.compute_s + steps_of_exchanges * self.exchange_s
            evaluations_s = evaluation_count * (self.epoch_start_delay_s + self.evaluation_exchange_s)
            return (seconds + evaluations_s + self.end_delay_s) / self.counted
        if not all(self.steps_s):
            return 0.0
        rates = (samples / step_s for samples, step_s in zip(mean_samples_by_worker, self.steps_s, strict=True))
        return step_count * sum(mean_samples_by_worker) / (sum(rates) * self.counted)
