"""Training loop of a worker: compute, exchange and update.

The loop ends when the sample budget is used or the run stops.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from services.plan import NodePlan, TrainingPlan
from services.runtime.cancellation import cancel_tasks
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient, FinalNodeReport, StopOrSwitchDecision
from services.runtime.pacing import is_phase_deadline_missed
from services.runtime.run_log import RunLog, StepTimer
from services.schema.arrays import Vector, without_divergence_warnings
from services.strategies import StepResult, WorkerAlgorithm, WorkerContext
from services.worker.batch_balancer import BatchBalancer
from services.worker.counters import LossAndStepCounters
from services.worker.evaluation_points import EvaluationPoints
from services.worker.gradient_computer import GradientComputer
from services.worker.replica_hash import log_replica_hash
from services.worker.step_log import TrainingStepLog
from services.worker.strategy_switch import WorkerStrategySwitch
from services.worker.training_phase import WorkerTrainingPhase
from services.worker.training_position import TrainingPosition, forget_position


@dataclass
class WorkerRuntime:
    """One worker of a training run.

    The class has the training loop, the current training phase and the log.
    """

    plan: TrainingPlan
    node: NodePlan
    phase: WorkerTrainingPhase
    gradients: GradientComputer
    control: CoordinatorClient
    clock: Clock
    log: RunLog
    on_step_begin: Callable[[int], Awaitable[None]]  # called before each step; events that wait for the step begin
    strategy_switch: WorkerStrategySwitch | None = None  # None: no switch planned, or it is over
    balancer: BatchBalancer | None = None  # None: shares of a batch never change
    counters: LossAndStepCounters = field(default_factory=LossAndStepCounters)
    is_evaluation_worker: bool = False  # whether the coordinator evaluates the parameters of this worker
    # With the parameters of this worker where the result of the run is the mean over workers; else empty.
    final_report: FinalNodeReport = field(default_factory=FinalNodeReport)
    step_log: TrainingStepLog = field(init=False)

    def __post_init__(self) -> None:
        self.step_log = TrainingStepLog(self.log, self.plan.recovery.log_interval_s)

    async def train(
        self,
        start: TrainingPosition | None = None,
        keep_position: Callable[[TrainingPosition], Awaitable[None]] = forget_position,
    ) -> None:
        """Train to the end of the run.

        Args:
            start: position to continue from; None: the initial parameters.
            keep_position: is called with the position before each step, and with the last one.
        """
        stop_task = asyncio.create_task(self._await_run_stop())
        switch_task = asyncio.create_task(self._await_strategy_switch())
        try:
            step, result = await self._run_training_steps(start, keep_position, stop_task, switch_task)
        finally:
            self.step_log.flush()
            await cancel_tasks(stop_task, switch_task)
        final_params = await self._leave_training_phase(step, result)
        self.final_report = self._make_final_report(step, final_params, result.samples)

    async def _run_training_steps(
        self,
        start: TrainingPosition | None,
        keep_position: Callable[[TrainingPosition], Awaitable[None]],
        stop_task: "asyncio.Task[None]",
        switch_task: "asyncio.Task[bool]",
    ) -> tuple[int, StepResult]:
        """Run training steps until the budget is used or the run stops.

        Return the step after the last one, and the result of the last one.
        """
        position = start or self.make_initial_position()
        step, result, self.counters = position.next_step, position.result, position.counters
        is_point_open = start is not None and self._is_evaluation_due(step, result)
        while True:
            await keep_position(TrainingPosition(step, result, self.counters))
            if is_point_open:
                result, decision = await self._report_evaluation_point(step, result)
                if decision.stop_reason:
                    break
                if decision.must_switch_strategy:
                    step, result = await self._switch_strategy(step, result)
            if self._is_strategy_switch_due(step, result) or (switch_task.done() and switch_task.result()):
                step, result = await self._switch_strategy(step, result)
            if not self._has_samples_left(step, result) or (stop_task.done() and not self.phase.is_synchronous):
                break
            result = await self._run_training_step(step, result)
            step += 1
            is_point_open = self._is_evaluation_due(step, result)
        return step, result

    def make_initial_position(self) -> TrainingPosition:
        """Return the position before the first step, with the initial parameters."""
        params = self.gradients.init_params(self.algorithm_context.device)
        result = StepResult(params, self.current_algorithm.initial_state(params))
        return TrainingPosition(0, result, LossAndStepCounters())

    def _is_evaluation_due(self, step: int, result: StepResult) -> bool:
        """Return whether this worker reports an evaluation point before `step`."""
        is_over = self.phase.is_synchronous and not self._has_samples_left(step, result)
        return step > 0 and (is_over or self.plan.evaluation_schedule.is_due_after(step))

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
        """Return whether the sample budget of the run allows this worker another step."""
        return self.phase.has_samples_left(
            next_step, previous_step_result, self.plan.data_order, self.plan.sample_budget
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
        data_order = self.plan.data_order
        samples = step_result.samples + self.phase.count_samples_in_progress(step, step_result, data_order)
        return samples >= data_order.count_samples_before(switch_step)

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
        samples = step_result.samples
        if self.phase.is_synchronous:
            samples = self.phase.count_samples_before(step, self.plan.data_order)
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
            log_replica_hash(self.log, self.algorithm_context, step_result.params, step)
        value = {
            "verb": decision.action,
            "seconds": round(self.clock.now() - started_s, 6),
            "bytes_sent": traffic.payload_bytes - bytes_before,
            "messages_sent": traffic.messages - messages_before,
        }
        self.log.log_event("node_switch", value, step=step)
        return step, step_result

    async def _run_training_step(self, step: int, previous: StepResult) -> StepResult:
        """Run one training step, and log its seconds of compute, exchange, waiting and update."""
        await self.on_step_begin(step)
        traffic = self.algorithm_context.transport.traffic
        bytes_before, messages_before = traffic.payload_bytes, traffic.messages
        started_ms, started_s = self.clock.timestamp_ms(), self.clock.now()
        times = self._make_step_timer()
        worker_state = self.current_algorithm.begin_step(step, previous.params, previous.state)
        try:
            loss, gradient, computed = await self.gradients.compute_gradient(self.phase, step, previous, times)
            with without_divergence_warnings():
                result = await self.current_algorithm.exchange_and_update(
                    step, previous.params, gradient, worker_state, times
                )
        except BaseException:
            await self.current_algorithm.cancel_exchange(worker_state)
            raise
        _move_early_compute(times, computed.early_s)
        await self._balance_batch(step, gradient.samples, times)
        self.counters.add_loss(loss, gradient.samples)
        self.counters.steps += 1
        seconds, step_s = times.seconds, self.clock.now() - started_s
        if computed.late_s is not None and gradient.samples:  # a step without samples has no deadline
            is_missed = is_phase_deadline_missed(self.clock, computed.late_s, seconds["compute"], step_s)
            self.counters.count_compute_deadline(is_missed=is_missed)
        if gradient.reduction is not None:
            self.step_log.add_bucket_exchanges(step, gradient.reduction.exchanges)
        self.step_log.add_step(
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
            log_replica_hash(self.log, self.algorithm_context, result.params, step + 1)
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

    async def _report_evaluation_point(
        self, finished_step_count: int, step_result: StepResult
    ) -> tuple[StepResult, StopOrSwitchDecision]:
        """Report an evaluation point to the coordinator.

        Return the result with which the next step begins, and the reply of the coordinator.
        """
        points = EvaluationPoints(self.plan, self.node, self.control, self.clock, self.log, self.is_evaluation_worker)
        result = await points.average_params(self.phase, finished_step_count, step_result)
        counters, self.counters = self.counters, self.counters.without_losses()
        decision = await points.report_params(self.phase, finished_step_count, result, counters)
        return replace(result, end_of_next_forward_s=None), decision  # the next step begins after the evaluation

    def _make_step_timer(self) -> StepTimer:
        return StepTimer(self.clock, self.algorithm_context.device.synchronize)


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
