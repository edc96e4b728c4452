"""Training phase of a worker: its algorithm, its share of each batch, and the samples that training uses."""

from dataclasses import dataclass

from services.learning.batch_balance.base import BatchShares
from services.learning.data_order import DataOrder
from services.strategies import StepResult, WorkerAlgorithm, WorkerContext


@dataclass(frozen=True)
class WorkerTrainingPhase:
    """Training phase of one worker: its algorithm, and its share of each batch.

    A run without strategy switch has one phase.
    """

    algorithm: WorkerAlgorithm
    is_synchronous: bool  # whether all workers do the same number of steps
    batch_shares: BatchShares  # of a whole batch by rank, or equal weights; 0 for a worker that only serves
    first_step: int = 0
    samples_at_start: int = 0  # used for the parameters before this phase

    @property
    def worker_computes_gradients(self) -> bool:
        """Whether this worker computes gradients in this training phase.

        Otherwise the worker only serves its shard.
        """
        return self.batch_shares[self.algorithm.context.rank] > 0

    @property
    def context(self) -> WorkerContext:
        """Resources that this worker's algorithm uses, such as device, transport and updater."""
        return self.algorithm.context

    def has_samples_left(
        self, next_step: int, previous_step_result: StepResult, data_order: DataOrder, sample_budget: int
    ) -> bool:
        """Return whether the sample budget of the run allows this worker another step.

        A worker that only serves after a switch has none. In synchronous training all workers do the same number of
        steps. In asynchronous training fast workers do more steps: the budget is used when other workers are already
        computing all of its remaining samples. A worker that does not receive their number assumes that every other
        worker computes as many samples as in this worker's last step.
        """
        if not self.worker_computes_gradients:
            return False
        if self.is_synchronous:
            return self.count_samples_before(next_step, data_order) < sample_budget
        if not next_step:
            return True
        in_progress = self.count_samples_in_progress(next_step, previous_step_result, data_order)
        return previous_step_result.samples + in_progress < sample_budget

    def count_samples_before(self, step: int, data_order: DataOrder) -> int:
        """Return the number of samples that synchronous training uses before `step`.

        The number is the total of all workers.
        """
        samples_before = data_order.count_samples_before
        return self.samples_at_start + samples_before(step) - samples_before(self.first_step)

    def count_samples_in_progress(self, step: int, step_result: StepResult, data_order: DataOrder) -> int:
        """Return the number of samples whose gradients other workers are computing at the moment."""
        if step_result.pending_samples is not None:
            return step_result.pending_samples
        sizes = data_order.share_sizes(step - 1, self.batch_shares)
        return sum(sizes) - sizes[self.context.rank]
