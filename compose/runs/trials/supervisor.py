"""Supervision of a trial on any engine, from the start of the nodes to clean-up.

Links are shaped and probed, then training starts. The coordinator's *start gate* holds back training until all nodes
have joined and the links are shaped.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.engines.base import TrialEventObserver
from compose.host.host_metrics import HostMetricsRecorder
from compose.runs.interrupt import defer_stop_signals, raise_again_if_stopped
from compose.runs.trials.log_tail import LogTail
from compose.runs.trials.node_faults import EXIT_KILLED, NodeFaultInjector
from compose.runs.trials.node_runner import LinkProbeFailed, TrialFailed, TrialNodeRunner
from compose.runs.trials.partition_starts import PartitionStarts
from services.plan import COORDINATOR, Plan
from services.plan.trial_outcome import CpuThrottleCounts, HostMetrics, LinkShapingRecord, TrialOutcome

POLL_INTERVAL_S = 0.02
REPORTED_FAILURE_EXIT_CODE = 4  # of a node that reports an error, which another node may have caused
# Wall seconds in which nodes must exit after the coordinator has logged the end of the run. Ten were too few on a host
# with a load of eight per core.
EXIT_TIMEOUT_S = 60.0


@dataclass
class TrialSupervisor:
    """Runs one trial, from the start of the nodes to clean-up.

    The stages of a trial run in order. Their durations are measured.
    """

    plan: Plan
    nodes: TrialNodeRunner
    trial_folder: Path
    watcher: TrialEventObserver
    timings_s: dict[str, float] = field(default_factory=dict)
    shaping: dict[str, LinkShapingRecord] = field(default_factory=dict)
    host_metrics: HostMetrics = field(default_factory=HostMetrics)
    throttling: dict[str, CpuThrottleCounts] = field(default_factory=dict)
    _joined: set[str] = field(default_factory=set)
    _left: set[str] = field(default_factory=set)
    _has_opened_gate: bool = False  # whether training may have begun
    _lost: set[str] = field(default_factory=set)  # nodes that are lost and have not joined again
    _is_over: bool = False

    def __post_init__(self) -> None:
        self._coordinator_log = LogTail(self.trial_folder / "logs" / f"{COORDINATOR}.log")
        self._faults = NodeFaultInjector(self.plan, self.nodes.process_control(), self.trial_folder / "events.jsonl")
        self._partitions = PartitionStarts(self.plan)

    def run_trial(self) -> TrialOutcome:
        """Run the whole trial and return its status.

        Afterwards, all nodes are removed, or the status names the nodes that could not be removed. An error fails only
        this trial; KeyboardInterrupt is raised again.
        """
        errors: list[Exception] = []
        exit_codes: dict[str, int] = {}
        kept: tuple[str, ...] = ()
        try:
            with _collect_error(errors):
                self._run_trial_stages()
        finally:
            with defer_stop_signals():
                with _collect_error(errors):
                    exit_codes = self.nodes.exit_codes()
                with self._timed_stage("down"), _collect_error(errors):
                    kept = self.nodes.stop()
        return TrialOutcome(
            trial=self.plan.trial,
            engine=self.plan.engine,
            status="failed" if errors else "success",
            reason="; ".join(dict.fromkeys(map(failure_reason, errors))),
            disturbance="; ".join(str(error) for error in errors if isinstance(error, LinkProbeFailed)),
            timings_s=self.timings_s,
            exit_codes=exit_codes,
            shaping=self.shaping,
            throttling=self.throttling,
            kept=kept,
            host=self.host_metrics,
        )

    def _run_trial_stages(self) -> None:
        """Run the stages of a trial, such as starting the nodes and shaping the links, in order.

        Defer stop signals while nodes start and while links are shaped or probed.
        """
        with self._timed_stage("up"), defer_stop_signals():
            self.nodes.start()
        with self._timed_stage("gate"):
            with defer_stop_signals():
                self.shaping = self.nodes.shape_links()
            self._wait_until(self._have_all_nodes_joined, self.plan.timeouts.start, "not all nodes joined")
            with self._timed_stage("probe"), defer_stop_signals():
                self.shaping |= self._probe_links()
            self._check_node_exit_codes(self.nodes.exit_codes())
            self._has_opened_gate = True
            self.nodes.start_training()
        with self._timed_stage("run"), self._record_host_metrics():
            self._wait_until(lambda: self._is_over, self.plan.timeouts.run, "the run did not end")
        self.shaping |= self.nodes.read_link_counters()
        self._wait_until(self._have_all_nodes_exited, EXIT_TIMEOUT_S / self.plan.dilation, "not all nodes exited")

    def _probe_links(self) -> dict[str, LinkShapingRecord]:
        """Measure all links; see `TrialNodeRunner.probe_links`.

        Raises:
            TrialFailed: a node has ended, which is the reason why links can't be measured; or a link differs.
        """
        try:
            return self.nodes.probe_links()
        except Exception:
            self._check_node_exit_codes(self.nodes.exit_codes())
            raise

    @contextmanager
    def _timed_stage(self, stage_name: str) -> Iterator[None]:
        """Record the duration of the `with` block as the duration of a stage of the trial.

        The duration is in wall seconds.
        """
        start_time = time.monotonic()
        try:
            yield
        finally:
            self.timings_s[stage_name] = round(time.monotonic() - start_time, 3)

    @contextmanager
    def _record_host_metrics(self) -> Iterator[None]:
        """Record metrics of the host during the `with` block.

        The metrics are recorded even if the block raises an exception.
        """
        recorder = HostMetricsRecorder(self.nodes.read_cpu_throttling)
        recorder.start()
        try:
            yield
        finally:
            self.host_metrics |= recorder.stop()
            self.throttling = recorder.cpu_throttling_by_node

    def _have_all_nodes_joined(self) -> bool:
        return self._joined >= {node.name for node in self.plan.nodes} - {COORDINATOR}

    def _have_all_nodes_exited(self) -> bool:
        return self.nodes.exit_codes().keys() | self._lost >= {node.name for node in self.plan.nodes}

    def _wait_until(self, is_done: Callable[[], bool], timeout_s: float, timeout_reason: str) -> None:
        """Wait until `is_done` returns True.

        Meanwhile, the coordinator's log events are passed to the trial's observer.

        Args:
            is_done: condition to wait for.
            timeout_s: timeout in virtual seconds.
            timeout_reason: description of the condition that is not met, for the error message.

        Raises:
            TrialFailed: a node ended with an error, or the timeout has passed.
            KeyboardInterrupt: a stop signal.
        """
        deadline = time.monotonic() + timeout_s * self.plan.dilation
        while True:
            raise_again_if_stopped()
            exit_codes = (
                self.nodes.exit_codes()
            )  # before the log, which then shows whether the nodes were allowed to end
            for event in self._coordinator_log.read_new_events():
                self._process_log_event(event)
            self._check_node_exit_codes(exit_codes)
            if is_done():
                return
            if not self._is_over:
                self._faults.apply_due_faults(exit_codes.keys() | self._left)
            if time.monotonic() > deadline:
                away = self._faults.explain_active_faults()
                raise TrialFailed(
                    f"{timeout_reason} within {timeout_s:g} virtual seconds (of the emulated cluster){away}"
                )
            time.sleep(self._faults.seconds_until_next_look(POLL_INTERVAL_S))

    def _process_log_event(self, log_event: dict[str, Any]) -> None:
        """Pass an event of the coordinator's log to the trial's observer.

        Also record which node joined or left, or that the run has ended.
        """
        if log_event["key"] == "membership":
            self._record_membership(log_event["value"]["node"], has_left=log_event["value"]["event"] == "left")
        elif log_event["key"] == "node_lost":
            self._lost.add(log_event["value"]["node"])
        self._is_over |= log_event["key"] == "run_stop"
        self._faults.handle_log_event(log_event)
        self._partitions.handle_log_event(log_event)
        self.watcher.coordinator_event_logged(self.plan, log_event)

    def _record_membership(self, node_name: str, *, has_left: bool) -> None:
        """Record that a node has left, or that it has joined, for the first time or again."""
        if has_left:
            self._left.add(node_name)
        else:
            self._joined.add(node_name)
            self._left.discard(node_name)
            self._lost.discard(node_name)

    def _check_node_exit_codes(self, exit_codes: dict[str, int]) -> None:
        """Raise TrialFailed if a node has ended with an error or too early.

        Killed nodes are checked first: nodes that report an error may only have lost their connection to a killed node.
        The policy for lost nodes holds from the start of training to the end of the trial. Before, every node is
        needed: its peers are connected with it, and its link is probed.
        """
        expected = self._faults.lost_nodes | (self._lost if self._is_over else set())
        unexpected = {name: code for name, code in exit_codes.items() if name not in expected}
        for node_name, exit_code in sorted(unexpected.items(), key=lambda item: item[1] == REPORTED_FAILURE_EXIT_CODE):
            if self._has_opened_gate and self._faults.handle_unexpected_end(node_name, exit_code):
                continue
            if exit_code:
                last_line = self.nodes.last_stderr_line(node_name) or _explain_silent_end(exit_code)
                away = self._faults.explain_active_faults() + self._partitions.explain_partitions()
                raise TrialFailed(f"{node_name} ended with exit code {exit_code}: {last_line}{away}")
            if not self._is_over and node_name not in self._left:
                raise TrialFailed(f"{node_name} exited before the end of the run")


def _explain_silent_end(exit_code: int) -> str:
    return "killed by SIGKILL" if exit_code in (-signal.SIGKILL, EXIT_KILLED) else "no message"


@contextmanager
def _collect_error(errors: list[Exception]) -> Iterator[None]:
    """Catch an error of the `with` block, and add it to the errors that made the trial fail."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - an error in one trial must not end the other trials
        errors.append(error)


def failure_reason(error: Exception) -> str:
    """Return the text of an error for the status record of a trial.

    The text contains the error's type, unless the error is a TrialFailed.
    """
    return str(error) if isinstance(error, TrialFailed) else f"{type(error).__name__}: {error}"
