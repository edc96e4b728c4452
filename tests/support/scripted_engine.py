"""An engine whose nodes do nothing but fail as scripted, and runs of the scenario `smoke` with it."""

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from compose.engines import EngineChoice
from compose.engines.base import TrialEngine, TrialEventObserver
from compose.engines.simulated import SimulatedEngine
from compose.runs.run import FinishedRun, run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.runs.trials.node_runner import NodeProcessControl, TrialNodeRunner
from compose.runs.trials.supervisor import TrialSupervisor
from compose.runs.trials.trial_attempts import HostDisturbanceFinder, find_no_disturbance
from compose.scenario_files.load import find_scenario, load_scenario
from services.cluster.addresses import AddressAllocator, DummyAddresses
from services.cluster.node_faults import NodeAction
from services.plan import COORDINATOR, Plan
from services.plan.trial_outcome import LinkShapingRecord, TrialOutcome
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.run_settings import EngineName
from services.scenario.scenario import Scenario


class UnusedProcessControl(NodeProcessControl):
    """Control of nodes that no fault concerns."""

    def apply_action(self, action: NodeAction, node_name: str) -> None:
        raise AssertionError(f"no fault concerns {node_name}, but {action} was applied to it")

    def describe_mechanism(self, action: NodeAction) -> str:
        raise AssertionError(f"no fault is declared, but {action} was described")


@dataclass
class ScriptedNodes(TrialNodeRunner):
    """Nodes that join and leave at once; some calls raise an error."""

    plan: Plan
    folder: Path
    errors: Mapping[str, Exception]
    training_started: bool = False

    def start(self) -> None:
        self._log_membership("joined")
        self._raise_error_of("start")

    def shape_links(self) -> dict[str, LinkShapingRecord]:
        self._raise_error_of("shape")
        return {}

    def probe_links(self) -> dict[str, LinkShapingRecord]:
        self._raise_error_of("probe")
        return {}

    def start_training(self) -> None:
        self._raise_error_of("start_training")
        self._log_membership("left")
        self.training_started = True
        with (self.folder / "logs" / f"{COORDINATOR}.log").open("a") as log:
            log.write(f"{LOG_LINE_PREFIX}{json.dumps({'key': 'run_stop', 'value': None})}\n")

    def exit_codes(self) -> dict[str, int]:
        self._raise_error_of("exit_codes")
        return {node.name: 0 for node in self.plan.nodes} if self.training_started else {}

    def last_stderr_line(self, node_name: str) -> str:
        return ""

    def process_control(self) -> NodeProcessControl:
        return UnusedProcessControl()

    def stop(self) -> tuple[str, ...]:
        self._raise_error_of("stop")
        return ()

    def _raise_error_of(self, call: str) -> None:
        if call in self.errors:
            raise self.errors[call]

    def _log_membership(self, event: str) -> None:
        with (self.folder / "logs" / f"{COORDINATOR}.log").open("a") as log:
            for node in self.plan.nodes:
                value = {"event": event, "node": node.name}
                log.write(f"{LOG_LINE_PREFIX}{json.dumps({'key': 'membership', 'value': value})}\n")


class ScriptedEngine(TrialEngine):
    """Engine whose calls raise errors as scripted, by the number of the trial."""

    name: ClassVar[EngineName] = "simulated"

    def __init__(self, errors: Mapping[int, Mapping[str, Exception]]) -> None:
        self.errors = errors
        self.started_trials = 0

    def missing_software(self) -> str | None:
        return None

    def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:
        return DummyAddresses()

    def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
        errors = self.errors.get(self.started_trials, {})
        self.started_trials += 1
        if "run" in errors:
            raise errors["run"]
        return TrialSupervisor(
            plan,
            ScriptedNodes(plan, trial_folder, errors),
            trial_folder,
            observer,
        ).run_trial()


class RunObserverStub:
    """Observer that ignores all notifications, but may kill the simulator when a trial starts."""

    def __init__(self, engine: TrialEngine | None = None) -> None:
        self.engine = engine

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None: ...

    def engine_preparation_started(self, description: str) -> None: ...

    def run_started(
        self, scenario: Scenario, engine_name: str, why_this_engine: str, plans: tuple[Plan, ...], run_folder: Path
    ) -> None:
        """Ignore the start of the run."""

    def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
        """Kill the process of a simulator before the second trial."""
        if isinstance(self.engine, SimulatedEngine) and trial_number == 2 and self.engine._process:
            os.kill(self.engine._process.pid, signal.SIGKILL)

    def trial_disturbed(self, plan: Plan, disturbance: str, next_attempt: str, pause_s: float) -> None: ...

    def trial_ended(self, plan: Plan, trial_status: str, wall_s: float) -> None: ...


def run_smoke_scenario(
    engine: TrialEngine,
    runs: Path,
    observer: RunObserverStub | None = None,
    find_host_disturbance: HostDisturbanceFinder = find_no_disturbance,
    **settings: str,
) -> FinishedRun:
    path = find_scenario("smoke")
    scenario = load_scenario(path, {"repeats": "2", "workload.epochs": "1"} | settings)
    source = ScenarioFile(scenario, path.read_text(), "")
    choice = EngineChoice(engine, "asked for")
    return run_scenario(source, choice, runs, observer or RunObserverStub(engine), find_host_disturbance)


class ScriptedLocalEngine(ScriptedEngine):
    """Engine whose nodes do nothing, and that accepts commands as processes do."""

    name: ClassVar[EngineName] = "local"
