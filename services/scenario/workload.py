"""What is trained, on what, and until when?"""

from collections.abc import Iterator
from functools import cache
from math import ceil
from typing import Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from services.learning.datasets import AnyDataset, Dataset, LearningTask
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser
from services.scenario.target import MEANINGS, Target
from services.schema.component import Record
from services.schema.conflicts import Conflict, refuse

Precision: TypeAlias = Literal["fp32", "fp64"]


class Workload(Record):
    """What is trained, on what, and until when."""

    dataset: AnyDataset
    model: AnyModel
    optimiser: AnyOptimiser
    batch: PositiveInt | None = Field(None, description="samples per step over all workers: strong scaling")
    batch_per_worker: PositiveInt | None = Field(None, description="samples per step and worker: weak scaling")
    epochs: PositiveInt = Field(10, description="passes over the training set, at most")
    target: Target | None = Field(None, description="quality at which training counts as done")
    stop: Literal["target", "budget"] = Field("target", description="at the target, or after all epochs anyway")
    precision: Precision = Field("fp32", description="number format of parameters and gradients")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        refuse(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[Conflict]:
        task, samples = posed(self.dataset)
        if (self.batch is None) == (self.batch_per_worker is None):
            yield Conflict(("batch",), "write one of batch (over all workers) and batch_per_worker")
        if max(self.batch or 0, self.batch_per_worker or 0) > samples:
            yield Conflict(
                ("batch",), f"a batch is larger than the training set; {self.dataset.kind} has {samples} samples"
            )
        if reason := self.model.conflict_reason(task):
            yield Conflict(("model",), reason)
        if self.target and task.loss not in MEANINGS[self.target.metric].losses:
            fitting = ", ".join(metric for metric, meaning in MEANINGS.items() if task.loss in meaning.losses)
            yield Conflict(
                ("target", "metric"), f"{self.target.metric} does not apply; {self.dataset.kind} has {fitting}"
            )

    def global_batch(self, workers: int) -> int:
        """Samples per step over all workers."""
        return self.batch or (self.batch_per_worker or 0) * workers

    def steps_per_epoch(self, workers: int) -> int:
        """Steps of one pass over the training set."""
        return ceil(posed(self.dataset).samples / self.global_batch(workers))

    def steps(self, workers: int) -> int:
        """Steps of the budget."""
        return self.epochs * self.steps_per_epoch(workers)


class Posed(NamedTuple):
    """What a dataset asks of a model."""

    task: LearningTask
    samples: int  # of the training set


@cache
def posed(dataset: Dataset) -> Posed:
    """What `dataset` asks of a model; it is loaded once for the answer."""
    data = dataset.load("float32")
    return Posed(data.task, len(data.train_x))
