"""The coordinator at work: lets the machine decide, waits and wakes, evaluates, and writes the log of the run."""

import asyncio
import hashlib
from dataclasses import dataclass, field

import numpy as np

from services.clock import Clock
from services.control import Epoch, Final
from services.coordinator.machine import Action, Answer, Evaluate, Finish, Release, Report, Run, Stop
from services.data import metrics
from services.datasets import Data
from services.device import HostArray
from services.models.losses import LOSSES
from services.plan import Plan
from services.runlog import RunLog


@dataclass
class Desk:
    """Where all nodes of a run report."""

    plan: Plan
    machine: Run
    data: Data
    clock: Clock
    log: RunLog
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _released_at: float = 0.0
    _due: dict[int, asyncio.Future[float]] = field(default_factory=dict)  # by number of an event that awaits a step
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _answers: dict[tuple[str, int], asyncio.Future[str]] = field(default_factory=dict)
    _finals: dict[str, Final] = field(default_factory=dict)
    _last: Epoch | None = None  # whose parameters were evaluated last
    _best_reached: bool = False

    async def join(self, node: str, plan_sha256: str) -> float:
        """A node is up; returns when the run starts, and when that is."""
        actions = self.machine.joined(node, plan_sha256)
        self.log.point("membership", {"node": node, "event": "joined"})
        await self._act(actions)
        await self._released.wait()
        return self._released_at

    def reached(self, step: int) -> None:
        """A worker begins a step; the events of links that wait for it begin, unless another worker was first."""
        for event in self.plan.events:
            due = self._moment(event.number)
            if event.is_of_links and event.step == step and not due.done():
                due.set_result(self.clock.now())
                self.log.point("event_due", {"number": event.number, "step": step})

    async def due(self, event: int) -> float:
        """Returns when an event begins that waits for a step, and when that is."""
        return await asyncio.shield(self._moment(event))  # who waits may hang up, others go on waiting

    async def open_gate(self) -> None:
        """The network is as the plan wants it."""
        await self._act(self.machine.gate_opened())

    async def end_epoch(self, epoch: Epoch) -> str:
        """A worker has finished an epoch; why it must stop, empty when it may go on."""
        answer = self._answer(epoch.node, epoch.number)
        await self._act(self.machine.epoch_ended(epoch))
        return await answer

    async def await_stop(self) -> str:
        """Why the run stops, once it does."""
        await self._stopped.wait()
        return self.machine.reason

    async def leave(self, node: str, final: Final) -> None:
        """A node has done its part."""
        self._finals[node] = final
        self.log.point("membership", {"node": node, "event": "left"})
        await self._act(self.machine.left(node))

    def _moment(self, event: int) -> asyncio.Future[float]:
        return self._due.setdefault(event, asyncio.get_running_loop().create_future())

    def _answer(self, node: str, epoch: int) -> asyncio.Future[str]:
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
                case Answer(node, number, reason):
                    self._decide(node, number, reason)
                case Stop():
                    self._stopped.set()
                case Finish():
                    await self._finish()

    def _release(self) -> None:
        self.log.end("init_stop")
        self._released_at = self.clock.now()
        self.log.start("run_start")
        self.log.start("epoch_start", epoch_num=1, samples_count=0)
        self._released.set()

    async def _evaluate(self, epoch: Epoch) -> None:
        """Measure the carrier's parameters; then the machine knows whether to go on."""
        self._last = epoch
        self.log.end("epoch_stop", epoch_num=epoch.number, samples_count=epoch.samples)
        vector = np.frombuffer(epoch.parameters, self.plan.dtype)
        found = await self._measure(vector, epoch.number, epoch.samples, epoch.steps)
        actions = self.machine.evaluated(epoch, found)
        if not self.machine.reason and epoch.number < self.plan.epochs:
            self.log.start("epoch_start", epoch_num=epoch.number + 1, samples_count=epoch.samples)
        await self._act(actions)

    async def _measure(self, vector: HostArray, epoch: int, samples: int, step: int) -> dict[str, float]:
        """Held-out quality of the parameters, logged."""
        where = {"epoch_num": epoch, "samples_count": samples}
        self.log.start("eval_start", **where)
        found = await self.clock.run(lambda: quality(self.plan, self.data, vector))
        metric = self.plan.target.metric if self.plan.target else next(iter(found))
        self.log.point("eval_accuracy", found[metric], **where, metric=metric)
        self.log.point("eval_metrics", found, **where, step=step)
        self.log.end("eval_stop", **where)
        self._best_reached |= self.plan.target is not None and self.plan.target.reached(found)
        return found

    def _report(self, epoch: Epoch, loss: float) -> None:
        self.log.point("train_loss", loss, epoch_num=epoch.number, samples_count=epoch.samples, step=epoch.steps)

    def _decide(self, node: str, number: int, reason: str) -> None:
        answer = self._answer(node, number)
        if not answer.done():
            answer.set_result(reason)

    async def _finish(self) -> None:
        """Everybody has left: what the servers hold is the result, else what the carrier held last."""
        held = [self._finals[name] for name in self.plan.holders]
        steps, samples = (self._last.steps, self._last.samples) if self._last else (0, 0)
        digest = self._last.sha256 if self._last else ""
        if held and not self.plan.strategy.synchronous:
            steps, samples = held[0].version, held[0].samples
            parameters = b"".join(final.parameters for final in held)
            digest = hashlib.sha256(parameters).hexdigest()
            await self._measure(np.frombuffer(parameters, self.plan.dtype), self._epochs_in(samples), samples, steps)
        self.log.point("params_sha256", digest, samples_count=samples, step=steps)
        missed = self.plan.target is not None and not self._best_reached
        self.log.end(
            "run_stop",
            status="aborted" if missed else "success",
            target_reached=self._best_reached,
            reason=self.machine.reason or ("target missed" if missed else "budget used"),
            samples_count=samples,
            step=steps,
        )
        self._stopped.set()
        self.finished.set()

    def _epochs_in(self, samples: int) -> int:
        return max(1, round(samples / self.plan.train_samples))


def quality(plan: Plan, data: Data, vector: HostArray) -> dict[str, float]:
    """Metrics of the task and the loss, on the held-out samples."""
    outputs = plan.model.predict(data.task, vector, data.test_x)
    loss, _ = LOSSES[data.task.loss](outputs, data.test_y)
    return metrics(data.task, outputs, data.test_y) | {"loss": float(loss)}
