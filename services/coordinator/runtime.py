"""The coordinator at work: lets the machine decide, waits and wakes, evaluates, and writes the log of the run."""

import asyncio
import hashlib
from dataclasses import dataclass, field

import numpy as np

from services.coordinator.machine import (
    Action,
    Answer,
    Dismiss,
    Evaluate,
    Finish,
    Prepare,
    Release,
    Report,
    Run,
    Stop,
)
from services.coordinator.switchover import Judged, Ruled, Summon
from services.learning.data_order import compute_metrics
from services.learning.datasets import TrainTestData
from services.learning.models.losses import LOSSES
from services.plan import Plan
from services.runtime.clock import Clock
from services.runtime.control import (
    EpochDecision,
    EpochReport,
    FinalState,
    HandOverDecision,
    HandOverStage,
    HandOverState,
)
from services.runtime.run_log import RunLog
from services.schema.arrays import HostArray
from services.strategies.switching.rules import EvaluationPoint, RuleDecision


@dataclass
class Desk:
    """Where all nodes of a run report."""

    plan: Plan
    machine: Run
    data: TrainTestData
    clock: Clock
    log: RunLog
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _released_at: float = 0.0
    _due: dict[int, asyncio.Future[float]] = field(default_factory=dict)  # by number of an event that awaits a step
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _answers: dict[tuple[str, int], asyncio.Future[EpochDecision]] = field(default_factory=dict)
    _called: asyncio.Event = field(default_factory=asyncio.Event)  # to a switch, or dismissed from waiting for one
    _dismissed: bool = False
    _rulings: dict[HandOverStage, asyncio.Future[HandOverDecision]] = field(default_factory=dict)
    _summoned_at: float = 0.0
    _switching: bool = False
    _patience: asyncio.Task[None] | None = None
    _finals: dict[str, FinalState] = field(default_factory=dict)
    _last: EpochReport | None = None  # whose parameters were evaluated last
    _best_reached: bool = False
    _epoch: int | None = None  # that has begun and not ended

    async def join(self, node: str, plan_sha256: str) -> float:
        """A node is up; returns when the run starts, and when that is."""
        actions = self.machine.joined(node, plan_sha256)
        self.log.log_event("membership", {"node": node, "event": "joined"})
        await self._act(actions)
        await self._released.wait()
        return self._released_at

    def reached(self, step: int) -> None:
        """A worker begins a step; the events of links begin that wait for it or one before, if they have not yet."""
        for event in self.plan.events:
            due = self._moment(event.number)
            if event.is_of_links and event.step is not None and event.step <= step and not due.done():
                due.set_result(self.clock.now())
                self.log.log_event("event_due", {"number": event.number, "step": step})

    async def due(self, event: int) -> float:
        """Returns when an event begins that waits for a step, and when that is."""
        return await asyncio.shield(self._moment(event))  # who waits may hang up, others go on waiting

    async def open_gate(self) -> None:
        """The network is as the plan wants it."""
        await self._act(self.machine.gate_opened())

    async def end_epoch(self, epoch: EpochReport) -> EpochDecision:
        """A worker has finished an epoch; what it does now."""
        answer = self._answer(epoch.node_name, epoch.epoch)
        await self._act(self.machine.epoch_ended(epoch))
        return await answer

    async def await_hand_over(self) -> bool:
        """True when a node must come to a hand-over, false when there will be none any more."""
        await self._called.wait()
        return not self._dismissed

    async def hand_over(self, held: HandOverState) -> HandOverDecision:
        """A node has stopped, or has loaded; how it goes on once that is known of all."""
        ruling = self._ruling(held.stage)
        await self._act(self.machine.handed_over(held))
        return await asyncio.shield(ruling)

    async def await_stop(self) -> str:
        """Why the run stops, once it does."""
        await self._stopped.wait()
        return self.machine.reason

    async def leave(self, node: str, final: FinalState) -> None:
        """A node has done its part."""
        self._finals[node] = final
        self.log.log_event("membership", {"node": node, "event": "left"})
        await self._act(self.machine.left(node))

    def _moment(self, event: int) -> asyncio.Future[float]:
        return self._due.setdefault(event, asyncio.get_running_loop().create_future())

    def _ruling(self, told: HandOverStage) -> asyncio.Future[HandOverDecision]:
        return self._rulings.setdefault(told, asyncio.get_running_loop().create_future())

    def _answer(self, node: str, epoch: int) -> asyncio.Future[EpochDecision]:
        """What will be answered to a node; the same future when it asks again."""
        return self._answers.setdefault((node, epoch), asyncio.get_running_loop().create_future())

    async def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Release():
                    self._release()
                case Evaluate(epoch):
                    await self._evaluate(epoch)
                case Report(epoch, loss):
                    self._report(epoch, loss)
                case Finish():
                    await self._finish()
                case _:
                    self._act_at_once(action)

    def _act_at_once(self, action: Action) -> None:
        match action:
            case Answer(node, number, reason):
                self._decide(node, number, EpochDecision(reason))
            case Prepare(node, number):
                self._decide(node, number, EpochDecision(must_hand_over=True))
            case Stop():
                self._stopped.set()
            case Judged(point, found):
                self._note(point, found)
            case Summon():
                self._summon()
            case Ruled():
                self._rule(action)
            case Dismiss():
                self._dismissed = True
                self._called.set()

    def _release(self) -> None:
        self.log.log_end("init_stop")
        self._released_at = self.clock.now()
        self.log.log_start("run_start")
        self._begin_epoch(1, 0)
        self._released.set()

    async def _evaluate(self, epoch: EpochReport) -> None:
        """Measure the carrier's parameters; then the machine knows whether to go on."""
        self._last = epoch
        self._end_epoch(epoch.samples)
        vector = np.frombuffer(epoch.parameters, self.plan.dtype)
        found = await self._measure(vector, epoch.epoch, epoch.samples, epoch.steps)
        actions = self.machine.evaluated(epoch, found)
        if not self.machine.reason and epoch.epoch < self.plan.epochs:
            self._begin_epoch(epoch.epoch + 1, epoch.samples)
        await self._act(actions)

    def _begin_epoch(self, number: int, samples: int) -> None:
        self._epoch = number
        self.log.log_start("epoch_start", epoch_num=number, samples_count=samples)

    def _end_epoch(self, samples: int) -> None:
        """Out of lockstep the carrier may do more epochs than were planned, which begin nowhere and end nowhere."""
        if self._epoch is not None:
            self.log.log_end("epoch_stop", epoch_num=self._epoch, samples_count=samples)
        self._epoch = None

    async def _measure(self, vector: HostArray, epoch: int, samples: int, step: int) -> dict[str, float]:
        """Held-out quality of the parameters, logged."""
        where = {"epoch_num": epoch, "samples_count": samples}
        self.log.log_start("eval_start", **where)
        found = await self.clock.run_compute(lambda: quality(self.plan, self.data, vector))
        metric = self.plan.target.metric if self.plan.target else next(iter(found))
        self.log.log_event("eval_accuracy", found[metric], **where, metric=metric)
        self.log.log_event("eval_metrics", found, **where, step=step)
        self.log.log_end("eval_stop", **where)
        self._best_reached |= self.plan.target is not None and self.plan.target.reached(found)
        return found

    def _report(self, epoch: EpochReport, loss: float) -> None:
        self.log.log_event("train_loss", loss, epoch_num=epoch.epoch, samples_count=epoch.samples, step=epoch.steps)

    def _decide(self, node: str, number: int, verdict: EpochDecision) -> None:
        answer = self._answer(node, number)
        if not answer.done():
            answer.set_result(verdict)

    def _note(self, point: EvaluationPoint, found: RuleDecision) -> None:
        """What the rule found, whether it fired or not: a run that never switches shows why."""
        self.log.log_event("switch_rule", found._asdict(), epoch_num=point.number, step=point.step)

    def _summon(self) -> None:
        self._summoned_at, self._switching = self.clock.now(), True
        self._called.set()
        self._patience = asyncio.get_running_loop().create_task(self._lose_patience())

    async def _lose_patience(self) -> None:
        """A node that never comes must not hold up the others."""
        await self.clock.sleep_until(self._summoned_at + self.plan.timeouts.step)
        await self._act(self.machine.switch_failed(f"not all nodes came within {self.plan.timeouts.step:g} s"))

    def _rule(self, ruled: Ruled) -> None:
        answer = self._ruling(ruled.round)
        if answer.done():
            return
        if ruled.round == "stopped" and ruled.ruling.action != "abort":
            self._log_switch("switch_prepared", ruled)
        answer.set_result(ruled.ruling)
        if ruled.ruling.action != "load":
            self._end_switch(ruled)

    def _end_switch(self, ruled: Ruled) -> None:
        if not self._switching:
            return  # an abort answers both rounds, and is one end
        self._switching = False
        if self._patience and self._patience is not asyncio.current_task():
            self._patience.cancel()
        if not self._dismissed:
            self._called.clear()
        self._log_switch("switch_committed" if ruled.ruling.action == "commit" else "switch_aborted", ruled)

    def _log_switch(self, key: str, ruled: Ruled) -> None:
        """Digests are by range of the vector; seconds count from the first node that stopped."""
        ruling, seconds = ruled.ruling, round(self.clock.now() - self._summoned_at, 6)
        if ruling.action == "abort":
            self.log.log_event(key, {"reason": ruling.abort_reason, "seconds": seconds})
            return
        value = {
            "step": ruling.first_step,
            "version": ruling.version,
            "samples": ruling.samples,
            "params_sha256": ruled.params,
            "state_sha256": ruled.state,
            "loaded": ruled.round == "loaded" or ruling.action == "load",
            "seconds": seconds,
        }
        self.log.log_event(key, value, samples_count=ruling.samples, step=ruling.first_step)

    async def _finish(self) -> None:
        """Everybody has left: what the servers hold is the result, else what the carrier held last."""
        held = [self._finals[name] for name in self.plan.holders]
        steps, samples = (self._last.steps, self._last.samples) if self._last else (0, 0)
        digest = self._last.parameters_sha256 if self._last else ""
        served = held and not self.machine.lockstep
        if served:
            steps, samples = held[0].version, held[0].samples
        self._end_epoch(samples)  # out of lockstep others may use up the budget before the carrier is through
        if served:
            parameters = b"".join(final.parameters for final in held)
            digest = hashlib.sha256(parameters).hexdigest()
            vector, epoch = np.frombuffer(parameters, self.plan.dtype), self._epochs_in(samples)
            passed = round(samples * self.plan.steps_per_epoch / self.plan.train_samples)
            found = await self._measure(vector, epoch, samples, passed)
            await self._act(self.machine.concluded(epoch, passed, found))
        self.log.log_event("params_sha256", digest, samples_count=samples, step=steps)
        missed = self.plan.target is not None and not self._best_reached
        self.log.log_end(
            "run_stop",
            status="aborted" if missed or self.machine.diverged else "success",
            target_reached=self._best_reached,
            reason=self.machine.reason or ("target missed" if missed else "budget used"),
            samples_count=samples,
            step=steps,
        )
        self._stopped.set()
        self.finished.set()

    def _epochs_in(self, samples: int) -> int:
        return max(1, round(samples / self.plan.train_samples))


def quality(plan: Plan, data: TrainTestData, vector: HostArray) -> dict[str, float]:
    """Metrics of the task and the loss, on the held-out samples."""
    outputs = plan.model.predict(data.task, vector, data.test_x)
    loss, _ = LOSSES[data.task.loss](outputs, data.test_y)
    return compute_metrics(data.task, outputs, data.test_y) | {"loss": float(loss)}
