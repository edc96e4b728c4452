"""Log of the training between two evaluations, with the keys of MLPerf."""

from dataclasses import dataclass

from services.learning.evaluation_schedule import EvaluationSchedule
from services.runtime.run_log import RunLog


@dataclass
class TrainingIntervalLog:
    """Logs the start and the stop of each training interval between two evaluations: an epoch, or a block of samples.

    MLPerf logs `epoch_start` where evaluations follow epochs, and `block_start` where they follow samples.
    """

    log: RunLog
    schedule: EvaluationSchedule
    _open_interval: int | None = None  # number of the interval whose start is logged and whose stop is not

    def log_start(self, first_epoch: int, samples_trained: int) -> None:
        """Log the start of the training before the next evaluation."""
        self._open_interval = first_epoch
        name, epoch_key = self._names
        self.log.log_start(f"{name}_start", **{epoch_key: first_epoch, "samples_count": samples_trained})

    def log_stop(self, samples_trained: int) -> None:
        """Log the end of the current interval, unless it has been logged already.

        In asynchronous training the evaluation worker may train longer than planned. This is not logged.
        """
        if self._open_interval is not None:
            name, epoch_key = self._names
            self.log.log_end(f"{name}_stop", **{epoch_key: self._open_interval, "samples_count": samples_trained})
        self._open_interval = None

    @property
    def _names(self) -> tuple[str, str]:
        """Name of an interval in the log, and the key of its first epoch."""
        return ("epoch", "epoch_num") if self.schedule.is_once_per_epoch else ("block", "first_epoch_num")
