"""Gradient of a worker's share of a batch, computed at the declared speed of its device."""

from collections import deque
from dataclasses import dataclass
from functools import partial

import numpy as np

from services.learning.datasets import TrainTestData
from services.learning.epoch_orders import SampleIndices
from services.learning.micro_batches import accumulate_gradients
from services.learning.randomness import BatchRandomness
from services.plan import TrainingPlan
from services.runtime.device import ComputeDevice, VectorPart
from services.runtime.pacing import ComputeSpeedPacer, ReportBucket, TimedComputeResult
from services.runtime.run_log import StepTimer
from services.schema.arrays import Array, Vector, array_namespace, without_divergence_warnings
from services.strategies import Gradient, StepResult
from services.strategies.overlap import BucketReduction
from services.worker.training_phase import WorkerTrainingPhase

WARM_UP_GRADIENTS = 3


@dataclass(frozen=True)
class GradientComputer:
    """Computes the loss and the gradient of one worker in each step of a training."""

    plan: TrainingPlan
    data: TrainTestData
    pacer: ComputeSpeedPacer
    owned_samples: SampleIndices | None = None  # training samples that this worker owns; None: workers share all

    def init_params(self, device: ComputeDevice) -> Vector:
        """Return the initial parameters of the model, in the memory of the device."""
        return device.to_device(self.plan.model.init_parameters(self.data.task, self.plan.seed, self.plan.dtype))

    async def warm_up(self, phase: WorkerTrainingPhase) -> None:
        """Compute a few gradients and an update before training starts, and discard them.

        Libraries load or compile their kernels and start their threads at first use, and a worker whose compute time is
        set by the scenario measures its real compute time. Without a warm-up the first step misses its deadline.
        """
        device, updater = phase.context.device, phase.context.updater
        params = self.init_params(device)
        x, y = self._load_samples(phase, self._select_samples(phase, 0))
        for _ in range(WARM_UP_GRADIENTS):
            await self.pacer.premeasure_compute_time(lambda: self._loss_and_gradient(phase, 0, params, x, y))
        updater.update_params(params, params, updater.init_state(params), 0)
        device.synchronize()

    def _select_samples(self, phase: WorkerTrainingPhase, step: int) -> SampleIndices:
        """Return the indices of the samples that this worker processes at `step`."""
        return self.plan.data_order.select_sample_indices(
            step, phase.context.rank, phase.batch_shares, self.owned_samples
        )

    def _load_samples(self, phase: WorkerTrainingPhase, indices: SampleIndices) -> tuple[Array, Array]:
        """Return inputs and labels of training samples, in the memory of the device."""
        device = phase.context.device
        return device.to_device(self.data.train_x[indices]), device.to_device(self.data.train_y[indices])

    async def compute_gradient(
        self, phase: WorkerTrainingPhase, step: int, previous: StepResult, step_timer: StepTimer
    ) -> tuple[float, Gradient, TimedComputeResult[tuple[float, Gradient]]]:
        """Return the mean loss and gradient over this worker's share of a batch.

        The batch is that of one step. Also return the measured compute times.
        """
        with step_timer.measure_phase("data"):
            share = self._select_samples(phase, step)
            x, y = self._load_samples(phase, share)
        params = previous.params
        host_vector = np.empty(params.shape, params.dtype)
        reduction = phase.algorithm.start_gradient_reduction(step, host_vector, len(share), step_timer)
        with step_timer.measure_phase("compute"):
            if reduction is None:
                computed = await self.pacer.run_paced(
                    step, len(share), lambda: self._loss_and_gradient(phase, step, params, x, y)
                )
            else:
                computed = await self._compute_in_buckets(phase, step, previous, x, y, reduction)
        return *computed.result, computed

    async def _compute_in_buckets(
        self,
        phase: WorkerTrainingPhase,
        step: int,
        previous: StepResult,
        x: Array,
        y: Array,
        reduction: BucketReduction,
    ) -> TimedComputeResult[tuple[float, Gradient]]:
        """Return what `_loss_and_gradient` returns, and report each bucket of the gradient when it is ready."""
        shares = [bucket.backward_share for bucket in reduction.buckets]
        compute = partial(self._loss_and_gradient_in_buckets, phase, step, previous.params, x, y, reduction)
        report, forward_end_s = reduction.report_bucket, previous.end_of_next_forward_s
        try:
            return await self.pacer.run_paced_in_buckets(step, len(x), compute, shares, report, forward_end_s)
        except BaseException:
            await reduction.cancel()
            raise

    def _loss_and_gradient(
        self, phase: WorkerTrainingPhase, step: int, params: Vector, x: Array, y: Array
    ) -> tuple[float, Gradient]:
        device, model, task = phase.context.device, self.plan.model, self.data.task
        randomness, host_mean = BatchRandomness(self.plan.seed, step, phase.context.rank), None
        with without_divergence_warnings():
            if self.plan.micro_batches > 1 and len(x):
                loss, mean = accumulate_gradients(model, task, params, x, y, randomness, self.plan.micro_batches)
            elif phase.algorithm.sends_gradients_from_host and device.has_own_memory:
                loss, gradients = model.compute_gradients(task, params, x, y, randomness)
                mean = array_namespace(params).empty_like(params)
                parts = (VectorPart(vector_range.start, gradient) for vector_range, gradient in gradients)
                host_mean = device.write_parts_and_copy_to_host(mean, parts)
            else:
                loss, mean = model.loss_and_grad(task, params, x, y, randomness)
        device.synchronize()  # the deadline of a paced worker is read afterwards
        return loss, Gradient(mean, len(x), phase.count_samples_before(step, self.plan.data_order), host_mean)

    def _loss_and_gradient_in_buckets(
        self,
        phase: WorkerTrainingPhase,
        step: int,
        params: Vector,
        x: Array,
        y: Array,
        reduction: BucketReduction,
        report_bucket: ReportBucket,
    ) -> tuple[float, Gradient]:
        """Compute the gradient into the vector of the reduction, and call `report_bucket` after each bucket."""
        device, model, task = phase.context.device, self.plan.model, self.data.task
        randomness = BatchRandomness(self.plan.seed, step, phase.context.rank)
        open_starts = deque(bucket.start for bucket in reduction.buckets)
        with without_divergence_warnings():
            loss, gradients = model.compute_gradients(task, params, x, y, randomness)
            for vector_range, gradient in gradients:
                vector_range.view(reduction.vector)[:] = device.to_host(gradient)
                if open_starts and vector_range.start == open_starts[0]:
                    open_starts.popleft()
                    report_bucket()
        samples_before = phase.count_samples_before(step, self.plan.data_order)
        return loss, Gradient(reduction.vector, len(x), samples_before, reduction=reduction)
