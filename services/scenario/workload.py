"""Workload: the dataset, model, optimiser, learning-rate schedule, batch size and budget of a scenario."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import ceil, sqrt
from typing import Literal, Self, TypeAlias

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from services.cluster.compute_speed import SampleOperations
from services.learning.data_order import DataOrder
from services.learning.datasets import AnyDataset
from services.learning.epoch_orders import AnyEpochOrder, ShuffledOrder
from services.learning.evaluation_schedule import EvaluationSchedule
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser
from services.learning.partitions import AnyPartition, IidPartition
from services.learning.partitions.assignment import PartSummary, summarise_parts
from services.learning.schedules import AnySchedule, ConstantSchedule, TrainingBudget
from services.scenario.conflicts.workload_conflicts import find_workload_conflicts
from services.scenario.learning_task import learning_task_of
from services.scenario.payload import DeclaredPayload, PlannedPayload, plan_payload
from services.scenario.target import QualityTarget
from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict, raise_conflicts
from services.schema.limits import MAX_PARTITION_SHARES
from services.schema.units import Operations
from services.strategies.base import WholeVectorNeed

Precision: TypeAlias = Literal["fp32", "fp64"]
BYTES_BY_PRECISION: Mapping[Precision, int] = {"fp32": 4, "fp64": 8}


class BatchScaling(FrozenRecord):
    """Rule that scales the learning rate with the global batch.

    linear: P. Goyal et al., "Accurate, large minibatch SGD", 2017. sqrt: A. Krizhevsky, "One weird trick for
    parallelizing convolutional neural networks", 2014; E. Hoffer et al., "Train longer, generalize better", 2017.
    """

    rule: Literal["linear", "sqrt", "none"] = Field(
        description="factor on the learning rate. linear: batch / base_batch; sqrt: its square root; none: 1"
    )
    base_batch: PositiveInt = Field(description="global batch for which the declared learning rate is meant")

    def rate_factor(self, global_batch_size: int) -> float:
        """Return the factor on the learning rate for a global batch."""
        ratio = global_batch_size / self.base_batch
        return {"linear": ratio, "sqrt": sqrt(ratio), "none": 1.0}[self.rule]


class Workload(FrozenRecord):
    """Training workload: dataset, model, optimiser, learning-rate schedule, batch size and training budget."""

    kind: Literal["training"] = "training"
    dataset: AnyDataset
    model: AnyModel
    optimiser: AnyOptimiser
    schedule: AnySchedule = Field(ConstantSchedule(), description="learning rate during training, with warm-up")
    clip_norm: PositiveFloat | None = Field(
        None, description="largest Euclidean norm of the gradient of an update; longer gradients are scaled to it"
    )
    batch_scaling: BatchScaling | None = Field(
        None, description="learning rate for other global batches than the one for which it is declared"
    )
    batch: PositiveInt | None = Field(None, description="samples per step of all workers together: strong scaling")
    batch_per_worker: PositiveInt | None = Field(None, description="samples per step and worker: weak scaling")
    micro_batches: PositiveInt = Field(
        1,
        description="parts in which a worker computes its share of a batch, one after another, to need less memory; "
        "their gradients are summed before the exchange (gradient accumulation)",
    )
    epochs: PositiveInt = Field(10, description="training budget: largest number of passes over the training set")
    evaluate_every: PositiveInt | None = Field(
        None,
        description="training samples between two evaluations of the model, rounded up to whole steps; default: one "
        "epoch. The end of the budget is always evaluated",
    )
    target: QualityTarget | None = Field(None, description="quality at which training counts as done")
    stop: Literal["target", "budget"] = Field("target", description="training ends at the target, or after all epochs")
    precision: Precision = Field("fp32", description="number format of parameters and gradients")
    payload: DeclaredPayload | None = Field(
        None,
        description="model whose messages are sent while `model` is trained: a known model such as bert-large, or a "
        "number of parameters with a format, such as 30.8M x fp32",
    )
    flops_per_sample: Operations | None = Field(
        None,
        description="floating-point operations of forward and backward pass for one sample, for workers with a "
        "utilisation; default: those of the known model of payload, else those of `model`",
    )
    order: AnyEpochOrder = Field(ShuffledOrder(), description="order in which an epoch reads the training samples")
    partition: AnyPartition = Field(IidPartition(), description="which training samples each worker may use")

    @model_validator(mode="after")
    def _reject_field_conflicts(self) -> Self:
        raise_conflicts(find_workload_conflicts(self))
        return self

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

    @cached_property
    def sample_operations(self) -> SampleOperations | None:
        """Floating-point operations of a training step for one sample, from which a utilisation gives a speed.

        They are declared, or those of the named model of `payload`, or those of the trained model. None if the
        operations of the payload's model, or of a model of the user, are not known.
        """
        if self.flops_per_sample is not None:
            return SampleOperations(self.flops_per_sample, "workload.flops_per_sample")
        if self.payload is not None:
            model = self.payload.published_model
            if model is None or model.flops_per_sample is None:
                return None
            return SampleOperations(model.flops_per_sample, f"published for {self.payload.model_size.model_name}")
        task = learning_task_of(self.dataset).task
        operations = self.model.training_flops(task)
        return SampleOperations(operations, f"computed for model {self.model.kind}") if operations else None

    @property
    def computes_on_gpu(self) -> bool:
        """Whether workers can compute on a GPU."""
        return self.model.computes_on_gpu

    @cached_property
    def planned_payload(self) -> PlannedPayload | None:
        """Sizes of the declared model and of the trained model; None if no payload is declared."""
        if self.payload is None:
            return None
        parameters = self.model.parameter_layout(learning_task_of(self.dataset).task).parameter_count
        return plan_payload(self.payload, parameters, parameters * BYTES_BY_PRECISION[self.precision])

    def global_batch_size(self, worker_count: int) -> int:
        """Return the global batch size: the number of samples per step over all workers."""
        return self.batch or (self.batch_per_worker or 0) * worker_count

    @property
    def whole_vector_need(self) -> WholeVectorNeed | None:
        """Reason why an update needs the whole parameter vector; None if it does not."""
        if not self.optimiser.is_element_wise:
            why = f"optimiser {self.optimiser.kind} needs the norms of whole arrays"
            return WholeVectorNeed(why, "use an element-wise optimiser such as adamw")
        if self.clip_norm is not None:
            return WholeVectorNeed("clip_norm needs the norm of the whole gradient", "remove clip_norm from workload")
        return None

    def batch_rate_factor(self, worker_count: int) -> float:
        """Return the factor of `batch_scaling` on the learning rate; 1 without it."""
        return self.batch_scaling.rate_factor(self.global_batch_size(worker_count)) if self.batch_scaling else 1.0

    def scale_rate_by_batch(self, worker_count: int) -> AnyOptimiser:
        """Return the declared optimiser with the learning rate for the global batch of this many workers."""
        return self.optimiser.model_copy(update={"rate": self.optimiser.rate * self.batch_rate_factor(worker_count)})

    def training_budget(self, worker_count: int) -> TrainingBudget:
        """Return the training budget, which converts steps to shares of the budget's samples."""
        return TrainingBudget(self.data_order(worker_count, seed=0), self.epochs)

    def steps_per_epoch(self, worker_count: int) -> int:
        """Return the number of training steps in one pass over the training set."""
        return ceil(learning_task_of(self.dataset).train_samples / self.global_batch_size(worker_count))

    def total_steps(self, worker_count: int) -> int:
        """Return the number of training steps in all epochs of the training budget."""
        return self.epochs * self.steps_per_epoch(worker_count)

    def evaluation_schedule(self, worker_count: int) -> EvaluationSchedule:
        """Return the steps after which the model is evaluated."""
        order = self.data_order(worker_count, seed=0)
        return EvaluationSchedule(order=order, epochs=self.epochs, samples_between=self.evaluate_every or order.samples)
