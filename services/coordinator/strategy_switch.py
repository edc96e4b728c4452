"""Strategy switch in the coordinator: calls all nodes, announces decisions, and aborts a switch that takes too long."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.coordinator.switch_machine import AnnounceDecisionAction
from services.runtime.clock import Clock
from services.runtime.control import ReportStage, StrategySwitchDecision
from services.runtime.run_log import RunLog


@dataclass
class StrategySwitchCalls:
    """Calls of the nodes in a strategy switch, which wait for its start and for its decisions."""

    clock: Clock
    log: RunLog
    timeout_s: float  # virtual; a node that never reports must not block the other nodes
    is_wait_cancelled: bool = False  # whether nodes need not wait for a switch, because none will come
    epoch: int = 0  # membership epoch in which the switch has begun, or begins; reports of earlier ones do not count
    _call: asyncio.Event = field(default_factory=asyncio.Event)  # set when a switch starts, and by `cancel_wait`
    _decisions: dict[ReportStage, asyncio.Future[StrategySwitchDecision]] = field(default_factory=dict)
    _start_s: float = 0.0
    _is_switching: bool = False
    _is_over: bool = False  # whether the switch is committed or aborted
    _timeout: asyncio.Task[None] | None = None

    async def await_start(self) -> bool:
        """Wait until a strategy switch starts, and return whether one has started.

        Return false if the run ends without a switch.
        """
        await self._call.wait()
        return not self.is_wait_cancelled

    def cancel_wait(self) -> None:
        """End the wait of all nodes, because no switch will come."""
        self.is_wait_cancelled = True
        self._call.set()

    def decision_future(self, report_stage: ReportStage) -> asyncio.Future[StrategySwitchDecision]:
        """Return the future of the decision after all nodes have reported a stage of the switch."""
        return self._decisions.setdefault(report_stage, asyncio.get_running_loop().create_future())

    def start(self, abort: Callable[[str], Awaitable[None]]) -> None:
        """Call all nodes to a strategy switch, and call `abort` with a reason if it takes too long."""
        self._start_s, self._is_switching = self.clock.now(), True
        self._call.set()
        self._timeout = asyncio.get_running_loop().create_task(self._abort_on_timeout(abort))

    async def _abort_on_timeout(self, abort: Callable[[str], Awaitable[None]]) -> None:
        await self.clock.sleep_until(self._start_s + self.timeout_s)
        await abort(f"a node did not report its state within {self.timeout_s:g} s")

    def begin_epoch(self, epoch: int) -> None:
        """Begin the switch anew in a new membership epoch, unless it is over.

        Calls of earlier epochs never return: their nodes learn of the new epoch, and cancel them.
        """
        if self._is_over:
            return
        self.epoch, self._decisions = epoch, {}
        if self._is_switching:
            self._end_switching()
            value = {"epoch": epoch, "seconds": round(self.clock.now() - self._start_s, 6)}
            self.log.log_event("switch_restarted", value)

    def announce(self, announcement: AnnounceDecisionAction) -> None:
        """Send a decision to all nodes that wait for it, and log it."""
        decision = self.decision_future(announcement.stage)
        if decision.done():
            return
        if announcement.stage == "stopped" and announcement.decision.action != "abort":
            self._log_decision("switch_prepared", announcement)
        decision.set_result(announcement.decision)
        if announcement.decision.action != "load":
            self._finish(announcement)

    def _finish(self, announcement: AnnounceDecisionAction) -> None:
        self._is_over = True
        if not self._is_switching:
            return  # an abort decides both report stages, but ends the switch once
        self._end_switching()
        stage = "switch_committed" if announcement.decision.action == "commit" else "switch_aborted"
        self._log_decision(stage, announcement)

    def _end_switching(self) -> None:
        self._is_switching = False
        if self._timeout and self._timeout is not asyncio.current_task():
            self._timeout.cancel()
        if not self.is_wait_cancelled:
            self._call.clear()

    def _log_decision(self, log_event_key: str, announcement: AnnounceDecisionAction) -> None:
        """Log a stage of the strategy switch.

        The log entry contains the model's digests and the seconds since the first node stopped.
        """
        decision, seconds = announcement.decision, round(self.clock.now() - self._start_s, 6)
        if decision.action == "abort":
            self.log.log_event(log_event_key, {"reason": decision.abort_reason, "seconds": seconds})
            return
        value = {
            "step": decision.first_step,
            "version": decision.version,
            "samples": decision.samples,
            "params_sha256": announcement.param_digests,
            "state_sha256": announcement.state_digests,
            "loaded": announcement.stage == "loaded" or decision.action == "load",
            "seconds": seconds,
        }
        self.log.log_event(log_event_key, value, samples_count=decision.samples, step=decision.first_step)
