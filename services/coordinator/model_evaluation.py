"""Evaluation of the model by the coordinator: its quality, and pictures of what it does."""

from dataclasses import dataclass

import numpy as np

from services.learning.datasets import TrainTestData
from services.learning.evaluation import evaluate_model
from services.plan import TrainingPlan
from services.runtime.clock import Clock
from services.runtime.run_log import RunLog
from services.schema.arrays import HostArray


@dataclass
class ModelEvaluator:
    """Evaluates parameters on the evaluation set, and logs the results."""

    plan: TrainingPlan
    data: TrainTestData
    clock: Clock
    log: RunLog
    has_reached_target: bool = False  # whether an evaluation has reached the target

    async def measure_quality(self, params: HostArray, epoch: int, samples_trained: int, step: int) -> dict[str, float]:
        """Evaluate model parameters on the evaluation set.

        Log the quality metrics and return them by name.
        """
        labels = {"epoch_num": epoch, "samples_count": samples_trained}
        self.log.log_start("eval_start", **labels)
        eval_metrics = await self.clock.run_compute_function(lambda: evaluate_model(self.plan.model, self.data, params))
        metric = self.plan.target.metric if self.plan.target else next(iter(eval_metrics))
        self.log.log_event("eval_accuracy", eval_metrics[metric], **labels, metric=metric)
        self.log.log_event("eval_metrics", eval_metrics, **labels, step=step)
        self.log.log_end("eval_stop", **labels)
        self.has_reached_target |= self.plan.target is not None and self.plan.target.is_reached(eval_metrics)
        return eval_metrics

    async def log_sample_pictures(self, params: HostArray) -> None:
        """Log pictures that show what the trained model does, if the model has any and has not diverged.

        The run is over, so the pictures take no training time.
        """
        if params.size and np.isfinite(params).all():
            model, data = self.plan.model, self.data
            pictures = await self.clock.run_compute_function(lambda: model.create_sample_pictures(data, params))
            if pictures:
                self.log.log_event("sample_pictures", pictures.to_log_value())
