"""Schedule of evaluations: the training steps after which the quality of the model is measured.

The schedule is a pure function of the data order, so all nodes of a trial know the same steps.
"""

from math import ceil

from pydantic import Field

from services.learning.data_order import DataOrder
from services.schema.component import FrozenRecord


class EvaluationSchedule(FrozenRecord):
    """Steps after which the model is evaluated.

    An evaluation follows each step that completes a multiple of `samples_between` training samples, and the last step
    of the budget. So an evaluation comes at most one batch later than its multiple, and the delay does not add up from
    one evaluation to the next. If the multiples are multiples of the batch too, the delay is zero. With one epoch
    between evaluations, each evaluation follows the last step of an epoch.

    In asynchronous training, steps are those of the evaluation worker (the worker whose parameters are evaluated).
    """

    order: DataOrder
    epochs: int = Field(gt=0)  # training budget
    samples_between: int = Field(gt=0)  # training samples between two evaluations; at least one batch

    @property
    def is_once_per_epoch(self) -> bool:
        """Whether every evaluation follows the last step of an epoch."""
        return self.samples_between == self.order.samples

    @property
    def evaluation_count(self) -> int:
        """Number of evaluations of the whole budget, including the evaluation at its end."""
        return self.evaluation_number(self.epochs * self.order.steps_per_epoch)

    def is_due_after(self, finished_step_count: int) -> bool:
        """Return whether the last of the finished steps completes a multiple of `samples_between` samples."""
        return self._completed_multiples(finished_step_count) > self._completed_multiples(finished_step_count - 1)

    def evaluation_number(self, finished_step_count: int) -> int:
        """Return the number of the evaluation after the given number of finished steps, counted from 1.

        If no evaluation is due then, the result is the number of the next evaluation, because training has ended early.
        """
        return self._completed_multiples(finished_step_count) + (not self.is_due_after(finished_step_count))

    def epoch_of_evaluation(self, evaluation_number: int) -> int:
        """Return the number of the epoch in which an evaluation takes place, counted from 1.

        The evaluation at the end of the budget takes place in the last epoch. Asynchronous workers may train longer.
        """
        samples = evaluation_number * self.samples_between
        if evaluation_number == self.evaluation_count:
            samples = min(samples, self.epochs * self.order.samples)
        return ceil(samples / self.order.samples)

    def _completed_multiples(self, finished_step_count: int) -> int:
        return self.order.count_samples_before(finished_step_count) // self.samples_between
