"""Counters of a worker: losses, steps and compute deadlines."""

from dataclasses import dataclass


@dataclass
class LossAndStepCounters:
    """Counters of one worker: losses, steps and compute deadlines.

    Losses are those since the last evaluation point. Steps and compute deadlines are those of the whole run.
    """

    loss_sum: float = 0.0
    loss_samples: int = 0
    steps: int = 0
    deadlines: int = 0
    missed_deadlines: int = 0

    def add_loss(self, mean_loss: float, sample_count: int) -> None:
        """Add the loss of one step to the counters.

        `mean_loss` is the mean over `sample_count` samples.
        """
        self.loss_sum += mean_loss * sample_count
        self.loss_samples += sample_count

    def without_losses(self) -> "LossAndStepCounters":
        """Return counters whose losses start at zero.

        Steps and compute deadlines keep their counts.
        """
        return LossAndStepCounters(steps=self.steps, deadlines=self.deadlines, missed_deadlines=self.missed_deadlines)

    def only_losses(self) -> "LossAndStepCounters":
        """Return counters with these losses, whose steps and compute deadlines start at zero."""
        return LossAndStepCounters(self.loss_sum, self.loss_samples)

    def count_compute_deadline(self, *, is_missed: bool) -> None:
        """Count a compute deadline, and whether the deadline was missed.

        Only steps whose compute time the scenario sets have a deadline.
        """
        self.deadlines += 1
        self.missed_deadlines += is_missed
