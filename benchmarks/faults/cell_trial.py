"""Trial of one cell: an engine runs it, while another thread kills a node from outside in the phase of the cell."""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.faults.cell_result import CellResult
from benchmarks.faults.cells import MatrixCell
from benchmarks.faults.outside_kill import ContainerKiller, NodeKiller, ProcessKiller
from benchmarks.faults.phases import PhaseWatcher
from benchmarks.fidelity.provenance import MeasurementOrigin
from benchmarks.fidelity.training import SilentObserver, read_steps
from compose.engines.base import TrialEngine
from compose.runs.clean import remove_leftovers
from compose.scenario_files.load import load_scenario
from services.plan import TrainingPlan, make_plan
from services.plan.trial_outcome import TrialOutcome

WALL_LIMIT_S = 300.0  # for one trial, from the start of its nodes to their removal
MAX_TRIES = 3  # a phase may be over before the kill
KILLED_EXIT_CODES = (-9, 137)


class WallLimitReached(BaseException):
    """Raised in the main thread when a trial takes longer than `WALL_LIMIT_S`; no handler of errors catches it."""


@dataclass
class KillingThread:
    """Thread that waits for the phase of a cell in a running trial, and then kills the node of the cell."""

    watcher: PhaseWatcher
    kill_s: float | None = None  # when SIGKILL was requested, by the clock of the log
    _is_over: threading.Event = field(default_factory=threading.Event)
    _errors: list[BaseException] = field(default_factory=list)

    @contextmanager
    def run_during(self) -> Iterator[None]:
        """Run the thread during the `with` block.

        Raises:
            HostError: the node that is to be killed was not found.
        """
        thread = threading.Thread(target=self._kill_in_phase)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
        for error in self._errors:
            raise error

    def _kill_in_phase(self) -> None:
        try:
            if self.watcher.wait_for_nodes(self._is_over.is_set):
                killer = self._find_node()
                if self.watcher.wait_for_phase(self._is_over.is_set):
                    self.kill_s = self.watcher.now_s()
                    killer.kill()
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            self._errors.append(error)

    def _find_node(self) -> NodeKiller:
        plan, node_name = self.watcher.plan, self.watcher.cell.node_name
        return (ContainerKiller if plan.engine == "docker" else ProcessKiller)(plan.run, node_name)


def measure_cell(cell: MatrixCell, engine: TrialEngine, origin: MeasurementOrigin) -> CellResult:
    """Run the trial of a cell, again if the kill missed the phase, and return what was measured.

    Raises:
        HostError: the engine can't run the trial.
    """
    start_s = time.monotonic()
    for tries in range(1, MAX_TRIES + 1):
        result = _run_cell(cell, engine, origin).model_copy(update={"tries": tries})
        if result.was_killed_in_phase or result.is_hanging:
            break
    wall_s, load = time.monotonic() - start_s, os.getloadavg()[0]
    return result.model_copy(update={"wall_s": round(wall_s, 1), "host_load": round(load, 1)})


def _run_cell(cell: MatrixCell, engine: TrialEngine, origin: MeasurementOrigin) -> CellResult:
    plan = _plan_trial(cell, engine)
    with tempfile.TemporaryDirectory(prefix="ensayo-faults-") as folder_name:
        folder = Path(folder_name)
        (folder / "logs").mkdir()
        (folder / "plan.json").write_text(plan.model_dump_json())
        killing = KillingThread(PhaseWatcher(cell, plan, folder))
        try:
            with _limit_wall_time(), killing.run_during():
                outcome = engine.run_trial(plan, folder, SilentObserver())
        except WallLimitReached:
            remove_leftovers(plan.run)
            return CellResult(cell=cell.name, origin=origin, status="hangs", is_hanging=True)
        return _read_result(killing, outcome, origin, killing.watcher.now_s())


def _plan_trial(cell: MatrixCell, engine: TrialEngine) -> TrainingPlan:
    (trial,) = load_scenario(cell.make_document()).trials()
    run_name = f"faults-{time.time_ns():x}"
    node_count = 1 + trial.strategy.training_phases().server_count + trial.scenario.cluster.workers
    plan = make_plan(trial, run_name, engine.name, engine.choose_addresses(run_name, node_count))
    if not isinstance(plan, TrainingPlan):
        raise TypeError(f"{cell.name} plans a {plan.workload_kind}, not a training")
    return plan


@contextmanager
def _limit_wall_time() -> Iterator[None]:
    """Raise `WallLimitReached` inside the `with` block after `WALL_LIMIT_S`; only in the main thread."""

    def raise_limit(_number: int, _frame: FrameType | None) -> None:
        raise WallLimitReached

    before = signal.signal(signal.SIGALRM, raise_limit)
    signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _read_result(killing: KillingThread, outcome: TrialOutcome, origin: MeasurementOrigin, end_s: float) -> CellResult:
    """Return the result of a trial that ended at `end_s`, by the clock of the log."""
    watcher, kill_s = killing.watcher, killing.kill_s
    cell, period = watcher.cell, watcher.find_period()
    values: dict[str, Any] = {}
    if kill_s is not None and period is not None:
        losses = [event["value"]["node"] for event in watcher.events if event["key"] == "node_lost"]
        was_killed = cell.node_name in losses or outcome.exit_codes.get(cell.node_name) in KILLED_EXIT_CODES
        detection_s = kill_s  # by the engine, unless the coordinator has missed heartbeats
        if outcome.status == "success":
            detection_s = _find_detection_s(watcher, kill_s)
            end_s = _find_recovery_end_s(watcher, detection_s) or end_s
        values = {
            "was_killed_in_phase": was_killed and period.contains_death(kill_s),
            "kill_offset_s": round(kill_s - period.begin_s, 3),
            "detection_s": round(detection_s - kill_s, 3),
            "end_s": round(end_s - detection_s, 3),
        }
    samples = next((event["metadata"]["samples_count"] for event in watcher.events if event["key"] == "run_stop"), None)
    return CellResult(
        cell=cell.name,
        origin=origin.model_copy(update={"date": datetime.now(UTC).isoformat(timespec="minutes")}),
        status=outcome.status,
        reason=outcome.reason,
        disturbance=outcome.disturbance,
        samples=samples if outcome.status == "success" else None,
        **values,
    )


def _find_detection_s(watcher: PhaseWatcher, kill_s: float) -> float:
    """Return when the coordinator has considered the node lost, or the moment of the kill if it did not."""
    times_s = (
        event["time_ms"] / 1e3
        for event in watcher.events
        if event["key"] == "node_lost" and event["value"]["node"] == watcher.cell.node_name
    )
    return next((time_s for time_s in times_s if time_s > kill_s), kill_s)


def _find_recovery_end_s(watcher: PhaseWatcher, detection_s: float) -> float | None:
    """Return when a worker has finished the first step after the last change of the membership.

    If no step follows, return the moment of the change. None if the membership has not changed.
    """
    keys = ("membership_epoch", "membership_recovery")
    changes_s = [event["time_ms"] / 1e3 for event in watcher.events if event["key"] in keys]
    last_change_s = max((time_s for time_s in changes_s if time_s >= detection_s), default=None)
    if last_change_s is None:
        return None
    ends_s = (float(row["start_s"]) + float(row["step_s"]) for row in read_steps(watcher.trial_folder, watcher.plan))
    return min((end_s for end_s in ends_s if end_s > last_change_s), default=last_change_s)
