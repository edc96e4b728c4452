"""Workload: the dataset, model, optimiser, batch size and training budget of a scenario."""

from collections.abc import Iterator
from functools import cache
from math import ceil
from typing import Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from services.learning.data_order import DataOrder
from services.learning.datasets import AnyDataset, DataSource, LearningTask
from services.learning.datasets.files import DataFileError
from services.learning.epoch_orders import AnyEpochOrder, ShuffledOrder
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser
from services.learning.partitions import AnyPartition, IidPartition
from services.learning.partitions.assignment import PartSummary, summarise_parts
from services.scenario.target import QualityTarget, metric_names_of_loss
from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict, raise_conflicts
from services.schema.limits import MAX_PARTITION_SHARES

Precision: TypeAlias = Literal["fp32", "fp64"]


class Workload(FrozenRecord):
    """Training workload: dataset, model, optimiser, batch size and training budget."""

    dataset: AnyDataset
    model: AnyModel
    optimiser: AnyOptimiser
    batch: PositiveInt | None = Field(None, description="samples per step of all workers together: strong scaling")
    batch_per_worker: PositiveInt | None = Field(None, description="samples per step and worker: weak scaling")
    epochs: PositiveInt = Field(10, description="training budget: largest number of passes over the training set")
    target: QualityTarget | None = Field(None, description="quality at which training counts as done")
    stop: Literal["target", "budget"] = Field("target", description="training ends at the target, or after all epochs")
    precision: Precision = Field("fp32", description="number format of parameters and gradients")
    order: AnyEpochOrder = Field(ShuffledOrder(), description="order in which an epoch reads the training samples")
    partition: AnyPartition = Field(IidPartition(), description="which training samples each worker may use")

    @model_validator(mode="after")
    def _reject_field_conflicts(self) -> Self:
        raise_conflicts(self._find_field_conflicts())
        return self

    def _find_field_conflicts(self) -> Iterator[KeyConflict]:
        try:
            task, train_samples = learning_task_of(self.dataset)
        except DataFileError as error:
            yield KeyConflict(("dataset", error.key), str(error))
            return  # further checks need the samples
        if (self.batch is None) == (self.batch_per_worker is None):
            problem = "one of batch (samples over all workers) and batch_per_worker is required"
            both = "batch (samples over all workers) and batch_per_worker exclude each other; remove one"
            yield KeyConflict(("batch",), problem if self.batch is None else both)
        for key, size in (("batch", self.batch), ("batch_per_worker", self.batch_per_worker)):
            if size is not None and size > train_samples:
                message = (
                    f"{key} ({size}) is larger than the training set of {self.dataset.kind} ({train_samples} samples); "
                    f"use at most {train_samples}"
                )
                yield KeyConflict((key,), message)
        if reason := self.model.unsupported_task_reason(task):
            yield KeyConflict(("model",), reason)
        names = metric_names_of_loss(task.loss)
        if self.target and self.target.metric not in names:
            message = (
                f"{self.target.metric} does not apply to dataset {self.dataset.kind}; choose one of {', '.join(names)}"
            )
            yield KeyConflict(("target", "metric"), message)
        if self.partition.needs_classes and task.loss != "cross_entropy":
            message = (
                f"partition {self.partition.kind} needs a dataset with classes, and {self.dataset.kind} has none; "
                "use partition sizes or iid"
            )
            yield KeyConflict(("partition",), message)

    def find_partition_conflicts(self, worker_count: int) -> Iterator[KeyConflict]:
        """Yield the conflicts between the partition of the samples and the number of workers."""
        if reason := self.partition.worker_count_conflict(worker_count):
            yield KeyConflict(("partition",), reason)
            return
        sizes, steps = self.summarise_parts(worker_count).sizes, self.steps_per_epoch(worker_count)
        if 0 in sizes:
            message = (
                f"worker-{sizes.index(0)} would own none of the {sum(sizes)} training samples; use fewer workers, or "
                "a more even partition"
            )
            yield KeyConflict(("partition",), message)
        if len(sizes) * steps > MAX_PARTITION_SHARES:
            message = (
                f"{len(sizes):,} workers in {steps:,} steps per epoch have more than {MAX_PARTITION_SHARES:,} shares "
                "of batches to plan; use a larger batch, fewer workers, or partition iid"
            )
            yield KeyConflict(("partition",), message)

    def summarise_parts(self, worker_count: int) -> PartSummary:
        """Return the numbers of samples that each worker owns; empty if workers share all samples."""
        return summarise_parts(self.partition, self.dataset, worker_count)

    def data_order(self, worker_count: int, seed: int) -> DataOrder:
        """Return the order of the training samples in a trial with this seed."""
        return DataOrder(
            samples=learning_task_of(self.dataset).train_samples,
            batch=self.global_batch_size(worker_count),
            seed=seed,
            epoch_order=self.order,
            part_sizes=self.summarise_parts(worker_count).sizes,
        )

    def global_batch_size(self, worker_count: int) -> int:
        """Return the global batch size: the number of samples per step over all workers."""
        return self.batch or (self.batch_per_worker or 0) * worker_count

    def steps_per_epoch(self, worker_count: int) -> int:
        """Return the number of training steps in one pass over the training set."""
        return ceil(learning_task_of(self.dataset).train_samples / self.global_batch_size(worker_count))

    def total_steps(self, worker_count: int) -> int:
        """Return the number of training steps in all epochs of the training budget."""
        return self.epochs * self.steps_per_epoch(worker_count)


class LearningTaskAndTrainSize(NamedTuple):
    """The learning task of a dataset, and the size of its training set."""

    task: LearningTask
    train_samples: int


@cache
def learning_task_of(dataset: DataSource) -> LearningTaskAndTrainSize:
    """Return the learning task of a dataset and the size of its training set.

    The dataset is loaded at the first call.

    Raises:
        DataFileError: the dataset consists of files of the user, which can't be read.
    """
    description = dataset.describe()
    return LearningTaskAndTrainSize(description.task, description.train_samples)
