"""A worker at work: compute, exchange, update, until the run is decided."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil

from services.learning.data_order import RankWeights
from services.learning.datasets import TrainTestData
from services.plan import NodePlan, Plan
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient, EpochDecision, EpochReport
from services.runtime.pacing import Pacer, TimedResult, is_deadline_missed
from services.runtime.run_log import EventBatch, RunLog, StepTimes
from services.schema.arrays import HostArray, Vector
from services.strategies import Gradient, StepResult, WorkerAlgorithm, WorkerContext
from services.strategies.base import WorkerState
from services.worker.hand_over import HandOver

STEP_COLUMNS = (
    "step",
    "epoch",
    "start_s",
    "step_s",
    "data_s",
    "compute_s",
    "exchange_s",
    "wait_s",
    "update_s",
    "late_s",
    "samples",
    "loss",
    "bytes_sent",
    "messages_sent",
    "staleness",
    "forward_s",
    "backward_s",
)
WARM_UPS = 3


@dataclass
class Tally:
    """What a worker adds up: losses of the current epoch, steps and deadlines of the run."""

    loss_sum: float = 0.0
    loss_samples: int = 0
    steps: int = 0
    deadlines: int = 0
    missed: int = 0

    def lost(self, loss: float, samples: int) -> None:
        """Add the mean loss of some samples."""
        self.loss_sum += loss * samples
        self.loss_samples += samples

    def next_epoch(self) -> "Tally":
        """The same of the run, nothing of an epoch."""
        return Tally(steps=self.steps, deadlines=self.deadlines, missed=self.missed)

    def met(self, *, missed: bool) -> None:
        """Add a deadline."""
        self.deadlines += 1
        self.missed += missed


@dataclass(frozen=True)
class Phase:
    """The training phase of a worker; most runs have one from their start to their end."""

    algorithm: WorkerAlgorithm
    is_synchronous: bool  # whether all replicas hold the same bits after every step
    shares: RankWeights  # of a batch, by rank
    first: int = 0  # step
    samples: int = 0  # in the parameters before it

    @property
    def computes(self) -> bool:
        """Whether this worker has anything to do in it."""
        return self.shares[self.algorithm.context.rank] > 0


@dataclass
class Worker:
    """One worker and everything that it works with."""

    plan: Plan
    me: NodePlan
    phase: Phase
    data: TrainTestData
    pace: Pacer
    control: CoordinatorClient
    clock: Clock
    log: RunLog
    step_begins: Callable[[int], Awaitable[None]]  # what waits for a step happens then
    switch: HandOver | None = None  # to another strategy, while it may still come
    tally: Tally = field(default_factory=Tally)

    async def warm_up(self) -> None:
        """Compute some gradients and forget them.

        Libraries load their kernels and threads start when they are first used, and a paced worker learns how long its
        mathematics takes: a first step without that misses its deadline.
        """
        task, device = self.data.task, self.context.device
        params = device.to_device(self.plan.model.init(task, self.plan.seed, self.plan.dtype))
        share = self.plan.order.rank_indices(0, self.context.rank, self.phase.shares)
        x, y = device.to_device(self.data.train_x[share]), device.to_device(self.data.train_y[share])
        for _ in range(WARM_UPS):
            await self.pace.learn_compute_time(lambda: self._mathematics(params, x, y))

    async def train(self) -> None:
        """From the first parameters to the end of the run."""
        host = self.plan.model.init(self.data.task, self.plan.seed, self.plan.dtype)
        params = self.context.device.to_device(host)
        outcome = StepResult(params, self.algorithm.init(params))
        steps = EventBatch(self.log, "node_steps", STEP_COLUMNS)
        stopped = asyncio.create_task(self._stopped())
        summoned = asyncio.create_task(self._summoned())
        step = 0
        while True:
            if self._comes_to_switch(step, outcome) or (summoned.done() and summoned.result()):
                step, outcome = await self._hand_over(step, outcome)
            if not self._goes_on(step, outcome) or (stopped.done() and not self.phase.is_synchronous):
                break
            outcome = await self._step(step, outcome.params, outcome.state, steps)
            step += 1
            if step % self.plan.steps_per_epoch == 0 or (
                self.phase.is_synchronous and not self._goes_on(step, outcome)
            ):
                verdict = await self._end_epoch(step, outcome)
                if verdict.stop_reason:
                    break
                if verdict.must_hand_over:
                    step, outcome = await self._hand_over(step, outcome)
        steps.flush()
        await self._leave(step, outcome)
        for waiting in (stopped, summoned):
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

    async def _leave(self, step: int, outcome: StepResult) -> None:
        """Take leave of those who wait for its steps."""
        if self.phase.computes:
            await self.algorithm.finish(step, outcome, StepTimes(self.clock))
            await self.algorithm.leave(step)

    @property
    def algorithm(self) -> WorkerAlgorithm:
        """The worker algorithm of the current phase."""
        return self.phase.algorithm

    @property
    def context(self) -> WorkerContext:
        """What the worker algorithm uses of this worker."""
        return self.phase.algorithm.context

    def _goes_on(self, step: int, outcome: StepResult) -> bool:
        """Whether the budget has a step left for this worker.

        Who only serves from a switch on has none. In lockstep everybody does as many. Otherwise fast workers do more:
        the budget is spent when all that is left of its samples is being computed by the others. Who does not hear how
        many these are takes every other worker to have as many as in its own last step.
        """
        budget = self.plan.epochs * self.plan.train_samples
        if not self.phase.computes:
            return False
        if self.phase.is_synchronous:
            return self._samples(step) < budget
        return not step or outcome.samples + self._underway(step, outcome) < budget

    def _samples(self, step: int) -> int:
        """Samples in the parameters before `step`, in lockstep."""
        order = self.plan.order
        return self.phase.samples + order.samples_before(step) - order.samples_before(self.phase.first)

    def _underway(self, step: int, outcome: StepResult) -> int:
        """Samples that the others are computing meanwhile."""
        if outcome.pending_samples is not None:
            return outcome.pending_samples
        order = self.plan.order
        own = len(order.rank_indices(step - 1, self.context.rank, self.phase.shares))
        return len(order.batch_indices(step - 1)) - own

    async def _stopped(self) -> None:
        """Returns when the run is decided, for workers that don't wait for each other; never in lockstep."""
        if all(phase.phase_traits().is_synchronous for phase in self.plan.strategy.phases()):
            await asyncio.Event().wait()
        await self.control.await_stop()

    async def _summoned(self) -> bool:
        """Returns when a switch is decided that workers are not told of after an epoch: they are not in lockstep."""
        if self.switch is None or self.phase.is_synchronous:
            await asyncio.Event().wait()
        return await self.control.await_hand_over()

    def _comes_to_switch(self, step: int, outcome: StepResult) -> bool:
        """Whether a planned switch is due: at its step in lockstep, otherwise at its share of the budget's samples."""
        planned = self.plan.after.step if self.plan.after and self.switch else None
        if planned is None or not step or self.phase.is_synchronous:
            return planned == step
        return outcome.samples + self._underway(step, outcome) >= self.plan.order.samples_before(planned)

    async def _hand_over(self, step: int, outcome: StepResult) -> tuple[int, StepResult]:
        """Let the next strategy take over, or stay with this one when that fails; the next step, and what it has."""
        if self.switch is None:
            return step, outcome
        traffic, started = self.context.transport.traffic, self.clock.now()
        sent = traffic.payload_bytes, traffic.messages
        switch, self.switch = self.switch, None
        known = self._samples(step) if self.phase.is_synchronous else outcome.samples
        ruling, outcome = await switch.run(step, outcome, known)
        if ruling.action == "commit":
            step = ruling.first_step
            is_synchronous = switch.switch.second.phase_traits().is_synchronous
            self.phase = Phase(switch.after, is_synchronous, switch.shares, step, ruling.samples)
            self.log.log_event("node_hash", _sha256(self.context.device.to_host(outcome.params)), step=step)
        told = {
            "verb": ruling.action,
            "seconds": round(self.clock.now() - started, 6),
            "bytes_sent": traffic.payload_bytes - sent[0],
            "messages_sent": traffic.messages - sent[1],
        }
        self.log.log_event("node_switch", told, step=step)
        return step, outcome

    async def _step(self, step: int, params: Vector, state: WorkerState, steps: EventBatch) -> StepResult:
        """One step, timed by phase and logged."""
        await self.step_begins(step)
        traffic = self.context.transport.traffic
        sent = traffic.payload_bytes, traffic.messages
        started_ms, started = self.clock.timestamp_ms(), self.clock.now()
        times = StepTimes(self.clock)
        loss, gradient, computed = await self._gradient(step, params, times)
        outcome = await self.algorithm.step(step, params, gradient, state, times)
        self.tally.lost(loss, gradient.samples)
        self.tally.steps += 1
        spent, step_s = times.seconds, self.clock.now() - started
        if computed.late_s is not None and gradient.samples:  # nobody waits for the mathematics of no samples
            self.tally.met(missed=is_deadline_missed(self.clock, computed.late_s, spent["compute"], step_s))
        steps.add_row(
            (
                step,
                step // self.plan.steps_per_epoch + 1,
                round(started_ms / 1e3, 6),
                round(step_s, 6),
                *(round(spent.get(phase, 0.0), 6) for phase in ("data", "compute", "exchange", "wait", "update")),
                _rounded(computed.late_s),
                gradient.samples,
                loss,
                traffic.payload_bytes - sent[0],
                traffic.messages - sent[1],
                outcome.staleness,
                _rounded(computed.forward_s),
                _rounded(computed.backward_s),
            )
        )
        if self.plan.hash_every_step:
            self.log.log_event("node_hash", _sha256(self.context.device.to_host(outcome.params)), step=step + 1)
        return outcome

    async def _gradient(
        self, step: int, params: Vector, times: StepTimes
    ) -> tuple[float, Gradient, TimedResult[tuple[float, Vector]]]:
        """Mean loss and gradient of this worker's share of the batch, and when they came."""
        with times.measure("data"):
            share = self.plan.order.rank_indices(step, self.context.rank, self.phase.shares)
            x = self.context.device.to_device(self.data.train_x[share])
            y = self.context.device.to_device(self.data.train_y[share])
        with times.measure("compute"):
            computed = await self.pace.compute(step, len(share), lambda: self._mathematics(params, x, y))
        loss, mean = computed.result
        return loss, Gradient(mean, len(share)), computed

    def _mathematics(self, params: Vector, x: Vector, y: Vector) -> tuple[float, Vector]:
        result = self.plan.model.loss_and_grad(self.data.task, params, x, y)
        self.context.device.synchronize()
        return result

    async def _end_epoch(self, steps: int, outcome: StepResult) -> EpochDecision:
        """Tell the coordinator; what to do now."""
        host = self.context.device.to_host(outcome.params if outcome.eval_params is None else outcome.eval_params)
        digest = _sha256(host)
        if self.phase.is_synchronous:
            self.log.log_event("node_hash", digest, step=steps)
        tally, self.tally = self.tally, self.tally.next_epoch()
        return await self.control.report_epoch(
            EpochReport(
                node_name=self.me.name,
                epoch=ceil(steps / self.plan.steps_per_epoch),
                steps=steps,
                samples=outcome.samples or self._samples(steps),
                loss_sum=tally.loss_sum,
                loss_samples=tally.loss_samples,
                parameters=host.tobytes() if self.me.rank == 0 else b"",
                parameters_sha256=digest,
            )
        )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _sha256(vector: HostArray) -> str:
    return hashlib.sha256(vector.tobytes()).hexdigest()
