"""Training loop of a worker: compute, exchange and update.

The loop ends when the sample budget is used or the run stops.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from services.learning.batch_balance.base import BatchShares
from services.learning.datasets import TrainTestData
from services.learning.epoch_orders import SampleIndices
from services.learning.micro_batches import accumulate_gradients
from services.learning.randomness import BatchRandomness
from services.plan import NodePlan, TrainingPlan
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient, EvaluationPointReport, FinalNodeReport, StopOrSwitchDecision
from services.runtime.device import VectorPart
from services.runtime.pacing import ComputeSpeedPacer, ReportBucket, TimedComputeResult, is_phase_deadline_missed
from services.runtime.run_log import RunLog, StepTimer
from services.schema.arrays import (
    Array,
    HostArray,
    Vector,
    array_namespace,
    euclidean_norm,
    without_divergence_warnings,
)
from services.strategies import Gradient, StepResult, WorkerAlgorithm, WorkerContext
from services.strategies.overlap import BucketReduction
from services.worker.batch_balancer import BatchBalancer
from services.worker.step_log import TrainingStepLog
from services.worker.strategy_switch import WorkerStrategySwitch

WARM_UP_GRADIENTS = 3


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

    def count_compute_deadline(self, *, is_missed: bool) -> None:
        """Count a compute deadline, and whether the deadline was missed.

        Only steps whose compute time the scenario sets have a deadline.
        """
        self.deadlines += 1
        self.missed_deadlines += is_missed


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


@dataclass
class WorkerRuntime:
    """One worker of a training run.

    The class has the training loop, the current training phase and the log.
    """

    plan: TrainingPlan
    node: NodePlan
    phase: WorkerTrainingPhase
    data: TrainTestData
    pacer: ComputeSpeedPacer
    control: CoordinatorClient
    clock: Clock
    log: RunLog
    on_step_begin: Callable[[int], Awaitable[None]]  # called before each step; events that wait for the step begin
    strategy_switch: WorkerStrategySwitch | None = None  # None: no switch planned, or it is over
    owned_samples: SampleIndices | None = None  # training samples that this worker owns; None: workers share all
    balancer: BatchBalancer | None = None  # None: shares of a batch never change
    counters: LossAndStepCounters = field(default_factory=LossAndStepCounters)
    # With the parameters of this worker where the result of the run is the mean over workers; else empty.
    final_report: FinalNodeReport = field(default_factory=FinalNodeReport)

    async def warm_up(self) -> None:
        """Compute a few gradients and an update before training starts, and discard them.

        Libraries load or compile their kernels and start their threads at first use, and a worker whose compute time is
        set by the scenario measures its real compute time. Without a warm-up the first step misses its deadline.
        """
        task, device = self.data.task, self.algorithm_context.device
        params = device.to_device(self.plan.model.init_parameters(task, self.plan.seed, self.plan.dtype))
        share = self._select_samples(0)
        x, y = device.to_device(self.data.train_x[share]), device.to_device(self.data.train_y[share])
        for _ in range(WARM_UP_GRADIENTS):
            await self.pacer.premeasure_compute_time(lambda: self._loss_and_gradient(0, params, x, y))
        updater = self.algorithm_context.updater
        updater.update_params(params, params, updater.init_state(params), 0)
        device.synchronize()

    async def train(self) -> None:
        """Train from the initial parameters to the end of the run."""
        initial_params = self.plan.model.init_parameters(self.data.task, self.plan.seed, self.plan.dtype)
        params = self.algorithm_context.device.to_device(initial_params)
        result = StepResult(params, self.current_algorithm.initial_state(params))
        step_log = TrainingStepLog(self.log)
        stop_task = asyncio.create_task(self._await_run_stop())
        switch_task = asyncio.create_task(self._await_strategy_switch())
        evaluations, step = self.plan.evaluation_schedule, 0
        while True:
            if self._is_strategy_switch_due(step, result) or (switch_task.done() and switch_task.result()):
                step, result = await self._switch_strategy(step, result)
            if not self._has_samples_left(step, result) or (stop_task.done() and not self.phase.is_synchronous):
                break
            result = await self._run_training_step(step, result, step_log)
            step += 1
            is_over = self.phase.is_synchronous and not self._has_samples_left(step, result)
            if is_over or evaluations.is_due_after(step):
                result = await self._average_params(step, result)
                decision = await self._report_evaluation_point(step, result)
                result = replace(result, end_of_next_forward_s=None)  # the next step begins after the evaluation
                if decision.stop_reason:
                    break
                if decision.must_switch_strategy:
                    step, result = await self._switch_strategy(step, result)
        step_log.flush()
        final_params = await self._leave_training_phase(step, result)
        self.final_report = self._make_final_report(step, final_params, result.samples)
        for task in (stop_task, switch_task):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _make_final_report(self, step_count: int, final_params: Vector, sample_count: int) -> FinalNodeReport:
        """Return the final state of this worker: with its parameters if the result of the run is the workers' mean."""
        if not self.plan.is_result_on_workers:
            return FinalNodeReport()
        params = self.algorithm_context.device.to_host(final_params)
        return FinalNodeReport(params.tobytes(), step_count, sample_count)

    async def _leave_training_phase(self, next_step: int, step_result: StepResult) -> Vector:
        """Finish the exchanges of this worker, and return its parameters afterwards."""
        if not self.phase.worker_computes_gradients:
            return step_result.params
        with without_divergence_warnings():
            return await self.current_algorithm.leave(next_step, step_result, self._make_step_timer())

    @property
    def current_algorithm(self) -> WorkerAlgorithm:
        """Algorithm of this worker in the current training phase."""
        return self.phase.algorithm

    @property
    def algorithm_context(self) -> WorkerContext:
        """Resources that this worker's current algorithm uses, such as device, transport and updater."""
        return self.phase.algorithm.context

    def _has_samples_left(self, next_step: int, previous_step_result: StepResult) -> bool:
        """Return whether the sample budget of the run allows this worker another step.

        A worker that only serves after a switch has none. In synchronous training all workers do the same number of
        steps. In asynchronous training fast workers do more steps: the budget is used when other workers are already
        computing all of its remaining samples. A worker that does not receive their number assumes that every other
        worker computes as many samples as in this worker's last step.
        """
        budget = self.plan.sample_budget
        if not self.phase.worker_computes_gradients:
            return False
        if self.phase.is_synchronous:
            return self._sample_count_before_step(next_step) < budget
        return (
            not next_step
            or previous_step_result.samples + self._count_samples_in_progress(next_step, previous_step_result) < budget
        )

    def _sample_count_before_step(self, step: int) -> int:
        """Return the number of samples that synchronous training uses before `step`.

        The number is the total of all workers.
        """
        samples_before = self.plan.data_order.count_samples_before
        return self.phase.samples_at_start + samples_before(step) - samples_before(self.phase.first_step)

    def _count_samples_in_progress(self, step: int, step_result: StepResult) -> int:
        """Return the number of samples whose gradients other workers are computing at the moment."""
        if step_result.pending_samples is not None:
            return step_result.pending_samples
        sizes = self.plan.data_order.share_sizes(step - 1, self.phase.batch_shares)
        return sum(sizes) - sizes[self.algorithm_context.rank]

    def _select_samples(self, step: int) -> SampleIndices:
        """Return the indices of the samples that this worker processes at `step`."""
        return self.plan.data_order.select_sample_indices(
            step, self.algorithm_context.rank, self.phase.batch_shares, self.owned_samples
        )

    async def _await_run_stop(self) -> None:
        """Wait until the coordinator stops the run.

        This never returns if all phases are synchronous: there the reply at an evaluation point stops the worker.
        """
        if all(phase.describe_worker_exchange().is_synchronous for phase in self.plan.strategy.training_phases()):
            await asyncio.Event().wait()
        await self.control.await_run_stop()

    async def _await_strategy_switch(self) -> bool:
        """Wait until the coordinator starts a strategy switch.

        Return false if the run ends without one. This never returns in a synchronous phase: there the reply at an
        evaluation point calls the worker.
        """
        if self.strategy_switch is None or self.phase.is_synchronous:
            await asyncio.Event().wait()
        return await self.control.await_strategy_switch_start()

    def _is_strategy_switch_due(self, step: int, step_result: StepResult) -> bool:
        """Return whether the planned strategy switch is due before `step`.

        In synchronous training it is due at its step, in asynchronous training at its share of the budget's samples.
        """
        switch_step = self.plan.second_phase.planned_step if self.plan.second_phase and self.strategy_switch else None
        if switch_step is None or not step or self.phase.is_synchronous:
            return switch_step == step
        samples = step_result.samples + self._count_samples_in_progress(step, step_result)
        return samples >= self.plan.data_order.count_samples_before(switch_step)

    async def _switch_strategy(self, step: int, step_result: StepResult) -> tuple[int, StepResult]:
        """Take part in a strategy switch.

        Return the next step, and the parameters and state to continue with. If the switch is committed, all of them
        belong to the second strategy. If it is aborted, they are unchanged.
        """
        if self.strategy_switch is None:
            return step, step_result
        traffic, started_s = self.algorithm_context.transport.traffic, self.clock.now()
        bytes_before, messages_before = traffic.payload_bytes, traffic.messages
        switch, self.strategy_switch = self.strategy_switch, None
        samples = self._sample_count_before_step(step) if self.phase.is_synchronous else step_result.samples
        decision, step_result = await switch.switch_training_strategy(step, step_result, samples)
        if decision.action == "commit":
            step = decision.first_step
            self.phase = WorkerTrainingPhase(
                switch.algorithm_after,
                switch.switch.second.describe_worker_exchange().is_synchronous,
                switch.batch_shares,
                step,
                decision.samples,
            )
            self.log.log_event(
                "node_hash", _vector_sha256(self.algorithm_context.device.to_host(step_result.params)), step=step
            )
        value = {
            "verb": decision.action,
            "seconds": round(self.clock.now() - started_s, 6),
            "bytes_sent": traffic.payload_bytes - bytes_before,
            "messages_sent": traffic.messages - messages_before,
        }
        self.log.log_event("node_switch", value, step=step)
        return step, step_result

    async def _run_training_step(self, step: int, previous: StepResult, step_log: TrainingStepLog) -> StepResult:
        """Run one training step, and log its seconds of compute, exchange, waiting and update."""
        await self.on_step_begin(step)
        traffic = self.algorithm_context.transport.traffic
        bytes_before, messages_before = traffic.payload_bytes, traffic.messages
        started_ms, started_s = self.clock.timestamp_ms(), self.clock.now()
        times = self._make_step_timer()
        worker_state = self.current_algorithm.begin_step(step, previous.params, previous.state)
        loss, gradient, computed = await self._compute_gradient(step, previous, times)
        with without_divergence_warnings():
            result = await self.current_algorithm.exchange_and_update(
                step, previous.params, gradient, worker_state, times
            )
        _move_early_compute(times, computed.early_s)
        await self._balance_batch(step, gradient.samples, times)
        self.counters.add_loss(loss, gradient.samples)
        self.counters.steps += 1
        seconds, step_s = times.seconds, self.clock.now() - started_s
        if computed.late_s is not None and gradient.samples:  # a step without samples has no deadline
            is_missed = is_phase_deadline_missed(self.clock, computed.late_s, seconds["compute"], step_s)
            self.counters.count_compute_deadline(is_missed=is_missed)
        if gradient.reduction is not None:
            step_log.add_bucket_exchanges(step, gradient.reduction.exchanges)
        step_log.add_step(
            (
                step,
                step // self.plan.steps_per_epoch + 1,
                round(started_ms / 1e3, 6),
                round(step_s, 6),
                *(round(seconds.get(phase, 0.0), 6) for phase in ("data", "compute", "exchange", "wait", "update")),
                _round_to_microseconds(computed.late_s),
                gradient.samples,
                loss,
                traffic.payload_bytes - bytes_before,
                traffic.messages - messages_before,
                result.staleness,
                _round_to_microseconds(computed.forward_s),
                _round_to_microseconds(computed.backward_s),
                _round_to_microseconds(seconds.get("hidden")),
                _round_to_microseconds(seconds.get("early")),
            )
        )
        if self.plan.hash_every_step:
            self.log.log_event(
                "node_hash", _vector_sha256(self.algorithm_context.device.to_host(result.params)), step=step + 1
            )
        return result

    async def _balance_batch(self, step: int, sample_count: int, step_timer: StepTimer) -> None:
        """Measure the speed of this worker, and change the shares of a batch if a change is due after `step`.

        All workers exchange their speeds after the same step, and compute the same shares. The evaluation worker logs
        the shares when they change.
        """
        if self.balancer is None:
            return
        self.balancer.measure_step(sample_count, step_timer.seconds["compute"])
        if not self.balancer.is_resize_due(step):
            return
        with step_timer.measure_phase("exchange"):
            speeds = await self.balancer.exchange_speeds(step)
        shares = self.balancer.resize_shares(self.phase.batch_shares, speeds)
        if shares != self.phase.batch_shares and self.node.rank == 0:
            self.log.log_event("batch_shares", {"shares": shares, "samples_per_s": speeds}, step=step + 1)
        self.phase = replace(self.phase, batch_shares=shares)

    async def _compute_gradient(
        self, step: int, previous: StepResult, step_timer: StepTimer
    ) -> tuple[float, Gradient, TimedComputeResult[tuple[float, Gradient]]]:
        """Return the mean loss and gradient over this worker's share of a batch.

        The batch is that of one step. Also return the measured compute times.
        """
        with step_timer.measure_phase("data"):
            share = self._select_samples(step)
            x = self.algorithm_context.device.to_device(self.data.train_x[share])
            y = self.algorithm_context.device.to_device(self.data.train_y[share])
        params = previous.params
        host_vector = np.empty(params.shape, params.dtype)
        reduction = self.current_algorithm.start_gradient_reduction(step, host_vector, len(share), step_timer)
        with step_timer.measure_phase("compute"):
            if reduction is None:
                computed = await self.pacer.run_paced(
                    step, len(share), lambda: self._loss_and_gradient(step, params, x, y)
                )
            else:
                computed = await self._compute_in_buckets(step, previous, x, y, reduction)
        return *computed.result, computed

    async def _compute_in_buckets(
        self, step: int, previous: StepResult, x: Array, y: Array, reduction: BucketReduction
    ) -> TimedComputeResult[tuple[float, Gradient]]:
        """Return what `_loss_and_gradient` returns, and report each bucket of the gradient when it is ready."""
        shares = [bucket.backward_share for bucket in reduction.buckets]
        compute = partial(self._loss_and_gradient_in_buckets, step, previous.params, x, y, reduction)
        report, forward_end_s = reduction.report_bucket, previous.end_of_next_forward_s
        try:
            return await self.pacer.run_paced_in_buckets(step, len(x), compute, shares, report, forward_end_s)
        except BaseException:
            await reduction.cancel()
            raise

    def _loss_and_gradient(self, step: int, params: Vector, x: Array, y: Array) -> tuple[float, Gradient]:
        device, model, task = self.algorithm_context.device, self.plan.model, self.data.task
        randomness, host_mean = BatchRandomness(self.plan.seed, step, self.algorithm_context.rank), None
        with without_divergence_warnings():
            if self.plan.micro_batches > 1 and len(x):
                loss, mean = accumulate_gradients(model, task, params, x, y, randomness, self.plan.micro_batches)
            elif self.current_algorithm.sends_gradients_from_host and device.has_own_memory:
                loss, gradients = model.compute_gradients(task, params, x, y, randomness)
                mean = array_namespace(params).empty_like(params)
                parts = (VectorPart(vector_range.start, gradient) for vector_range, gradient in gradients)
                host_mean = device.write_parts_and_copy_to_host(mean, parts)
            else:
                loss, mean = model.loss_and_grad(task, params, x, y, randomness)
        device.synchronize()  # the deadline of a paced worker is read afterwards
        return loss, Gradient(mean, len(x), self._sample_count_before_step(step), host_mean)

    def _loss_and_gradient_in_buckets(
        self, step: int, params: Vector, x: Array, y: Array, reduction: BucketReduction, report_bucket: ReportBucket
    ) -> tuple[float, Gradient]:
        """Compute the gradient into the vector of the reduction, and call `report_bucket` after each bucket."""
        device, model, task = self.algorithm_context.device, self.plan.model, self.data.task
        randomness = BatchRandomness(self.plan.seed, step, self.algorithm_context.rank)
        open_starts = deque(bucket.start for bucket in reduction.buckets)
        with without_divergence_warnings():
            loss, gradients = model.compute_gradients(task, params, x, y, randomness)
            for vector_range, gradient in gradients:
                vector_range.view(reduction.vector)[:] = device.to_host(gradient)
                if open_starts and vector_range.start == open_starts[0]:
                    open_starts.popleft()
                    report_bucket()
        samples_before = self._sample_count_before_step(step)
        return loss, Gradient(reduction.vector, len(x), samples_before, reduction=reduction)

    def _make_step_timer(self) -> StepTimer:
        return StepTimer(self.clock, self.algorithm_context.device.synchronize)

    async def _average_params(self, finished_step_count: int, step_result: StepResult) -> StepResult:
        """Return the result of a step with the mean of the parameters of all workers as the parameters to evaluate.

        The result is unchanged if the strategy needs no exchange before an evaluation. Otherwise log how far the
        parameters of this worker are from the mean, and what the exchange has cost.
        """
        if step_result.average_params is None:
            return step_result
        traffic, started_s = self.algorithm_context.transport.traffic, self.clock.now()
        bytes_before = traffic.payload_bytes
        own = step_result.params if step_result.eval_params is None else step_result.eval_params
        with without_divergence_warnings():
            mean = await step_result.average_params()
            value = {
                "distance": float(euclidean_norm(own - mean)),
                "mean_norm": float(euclidean_norm(mean)),
                "seconds": round(self.clock.now() - started_s, 6),
                "bytes_sent": traffic.payload_bytes - bytes_before,
            }
        self.log.log_event("consensus", value, step=finished_step_count)
        return replace(step_result, eval_params=mean)

    async def _report_evaluation_point(
        self, finished_step_count: int, last_step_result: StepResult
    ) -> StopOrSwitchDecision:
        """Report an evaluation point to the coordinator.

        The coordinator's reply is to continue, stop or switch the strategy.
        """
        params = self.algorithm_context.device.to_host(
            last_step_result.params if last_step_result.eval_params is None else last_step_result.eval_params
        )
        digest = _vector_sha256(params)
        if self.phase.is_synchronous:
            self.log.log_event("node_hash", digest, step=finished_step_count)
        tally, self.counters = self.counters, self.counters.without_losses()
        return await self.control.report_evaluation_point(
            EvaluationPointReport(
                node_name=self.node.name,
                number=self.plan.evaluation_schedule.evaluation_number(finished_step_count),
                steps=finished_step_count,
                samples=last_step_result.samples or self._sample_count_before_step(finished_step_count),
                loss_sum=tally.loss_sum,
                loss_samples=tally.loss_samples,
                parameters=params.tobytes() if self.node.rank == 0 else b"",
                parameters_sha256=digest,
            )
        )


def _move_early_compute(step_timer: StepTimer, early_s: float) -> None:
    """Count compute that an emulated device did before the step, while the worker waited for the exchange before.

    It counts as compute, and as much of the exchange as hidden. The timer's phase `early` is this part of the compute.
    """
    moved_s = min(early_s, step_timer.seconds.get("exchange", 0.0))
    if moved_s:
        for phase, seconds in (("compute", moved_s), ("exchange", -moved_s), ("hidden", moved_s), ("early", moved_s)):
            step_timer.add_seconds(phase, seconds)


def _round_to_microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _vector_sha256(vector: HostArray) -> str:
    return hashlib.sha256(vector.tobytes()).hexdigest()
