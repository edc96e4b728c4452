"""Plan of one trial that trains a model."""

import platform
from pathlib import Path
from typing import Literal

from services.learning.data_order import DataOrder
from services.learning.datasets import AnyPlannedDataset
from services.learning.epoch_orders import AnyEpochOrder, ShuffledOrder
from services.learning.evaluation_schedule import EvaluationSchedule
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser
from services.learning.parameter_updater import ParameterUpdater
from services.learning.partitions import AnyPartition, IidPartition
from services.learning.schedules import AnySchedule, ConstantSchedule
from services.plan.node_plan import NodeRole
from services.plan.plan import Plan
from services.plan.training.continued_training import ContinuedTraining
from services.scenario.learning_task import learning_task_of
from services.strategies.overlap import GradientBucket


class TrainingPlan(Plan):
    """Plan of a trial in which the workers train a model of Ensayo or of the user under a strategy."""

    workload_kind: Literal["training"] = "training"
    dataset: AnyPlannedDataset
    model: AnyModel
    optimiser: AnyOptimiser  # with the learning rate of the first training phase
    workload_optimiser: AnyOptimiser  # as declared; the strategy may scale its learning rate
    rate_schedule: AnySchedule = ConstantSchedule()  # of the learning rate, by shares of the sample budget
    clip_norm: float | None = None  # largest norm of the gradient of an update
    batch_rate_factor: float = 1.0  # factor of `batch_scaling` in the learning rate, in all training phases
    micro_batches: int = 1  # parts in which a worker computes its share of a batch
    epochs: int  # training budget
    initial_shares: tuple[int, ...]  # of a whole batch at the first step, by rank; equal shares are all 1
    train_samples: int
    eval_samples: int
    steps_per_epoch: int
    evaluate_every: int  # training samples between two evaluations
    order: AnyEpochOrder = ShuffledOrder()  # of the training samples within an epoch
    partition: AnyPartition = IidPartition()  # of the training samples over the workers
    part_sizes: tuple[int, ...] = ()  # training samples that each worker owns, by rank; empty: all share all samples
    class_counts: tuple[tuple[int, ...], ...] = ()  # the same by rank and class; empty, too, for a regression
    continued: ContinuedTraining | None = None  # earlier training that the trial continues; None: it begins anew

    @property
    def data_order(self) -> DataOrder:
        """Order in which training samples are drawn, by step and rank."""
        return DataOrder(
            samples=self.train_samples,
            batch=self.batch,
            seed=self.seed,
            epoch_order=self.order,
            part_sizes=self.part_sizes,
        )

    @property
    def gradient_buckets(self) -> tuple[GradientBucket, ...]:
        """Buckets in which the first training phase exchanges gradients during the backward pass.

        Empty if it exchanges gradients after the backward pass.
        """
        return self.strategy.training_phases().first.describe_worker_exchange().gradient_buckets

    @property
    def first_step(self) -> int:
        """Step with which the trial begins: 0, or the step of the checkpoint from which it continues."""
        return self.continued.step if self.continued else 0

    @property
    def sample_budget(self) -> int:
        """Number of samples in all epochs of the training budget."""
        return self.epochs * self.train_samples

    @property
    def code_folders(self) -> tuple[Path, ...]:
        folders = (self.model.folders_on_nodes.code, self.dataset.code_folder)
        return tuple(folder for folder in folders if folder is not None)

    def host_folders(self, role: NodeRole) -> tuple[Path, ...]:
        data = None if role == "ps_shard" else self.dataset.folder_on_nodes  # only the other roles read samples
        return tuple(folder for folder in (data, *self.model.folders_on_nodes) if folder is not None)

    @property
    def host_python(self) -> str | None:
        has_packages = self.model.folders_on_nodes.packages is not None
        return ".".join(platform.python_version_tuple()[:2]) if has_packages else None

    def make_parameter_updater(self, phase_optimiser: AnyOptimiser) -> ParameterUpdater:
        """Return the updater of the parameters in a training phase with the optimiser `phase_optimiser`."""
        arrays = self.model.parameter_layout(learning_task_of(self.dataset).task).array_ranges
        return ParameterUpdater(phase_optimiser, self.rate_schedule, self.sample_budget, self.clip_norm, arrays)

    @property
    def evaluation_schedule(self) -> EvaluationSchedule:
        """Steps after which the quality of the model is evaluated."""
        return EvaluationSchedule(order=self.data_order, epochs=self.epochs, samples_between=self.evaluate_every)
