"""A trial that fails, for whatever reason, ends itself and nothing else."""

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from compose.engines import EngineChoice
from compose.engines.base import Engine, EventObserver
from compose.engines.simulated import SimulatedEngine
from compose.runs.run import FinishedRun, ScenarioFile, run_scenario
from compose.runs.supervisor import LogTail, TrialFailed, TrialNodes, TrialSupervisor
from compose.scenario_files.load import find_scenario, load_scenario
from services.cluster.addresses import AddressAllocator, InProcessAddresses
from services.plan import COORDINATOR, Plan
from services.plan.trial_outcome import LinkShapingRecord, TrialOutcome
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.scenario import EngineName, Scenario
from services.schema.errors import HostError


@dataclass
class Obedient(TrialNodes):
    """Nodes that join and leave at once; some calls fail."""

    plan: Plan
    folder: Path
    fails: Mapping[str, Exception]
    opened: bool = False

    def start(self) -> None:
        self._say("joined")
        self._may("start")

    def shape_links(self) -> dict[str, LinkShapingRecord]:
        self._may("shape")
        return {}

    def start_training(self) -> None:
        self._may("start_training")
        self._say("left")
        self.opened = True
        with (self.folder / "logs" / f"{COORDINATOR}.log").open("a") as log:
            log.write(f"{LOG_LINE_PREFIX}{json.dumps({'key': 'run_stop', 'value': None})}\n")

    def exit_codes(self) -> dict[str, int]:
        self._may("exit_codes")
        return {node.name: 0 for node in self.plan.nodes} if self.opened else {}

    def last_stderr_line(self, node_name: str) -> str:
        return ""

    def stop(self) -> tuple[str, ...]:
        self._may("stop")
        return ()

    def _may(self, call: str) -> None:
        if call in self.fails:
            raise self.fails[call]

    def _say(self, event: str) -> None:
        with (self.folder / "logs" / f"{COORDINATOR}.log").open("a") as log:
            for node in self.plan.nodes:
                value = {"event": event, "node": node.name}
                log.write(f"{LOG_LINE_PREFIX}{json.dumps({'key': 'membership', 'value': value})}\n")


class Rehearsed(Engine):
    """Fails where it is told to, by the number of the trial."""

    name: ClassVar[EngineName] = "simulated"

    def __init__(self, fails: Mapping[int, Mapping[str, Exception]]) -> None:
        self.fails = fails
        self.count = 0

    def missing_requirement(self) -> str | None:
        return None

    def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:
        return InProcessAddresses()

    def run_trial(self, plan: Plan, trial_folder: Path, observer: EventObserver) -> TrialOutcome:
        fails = self.fails.get(self.count, {})
        self.count += 1
        if "run" in fails:
            raise fails["run"]
        return TrialSupervisor(
            plan, Obedient(plan, trial_folder, fails), LogTail(trial_folder / "logs" / f"{COORDINATOR}.log"), observer
        ).run_trial()


class Onlooker:
    """Sees nothing, and may act when a trial starts."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None: ...

    def preparation_started(self, what: str) -> None: ...

    def run_started(self, scenario: Scenario, engine: str, reason: str, plans: tuple[Plan, ...], folder: Path) -> None:
        """Nothing to see."""

    def trial_started(self, plan: Plan, number: int, count: int) -> None:
        """The process of a simulator dies before the second trial."""
        if isinstance(self.engine, SimulatedEngine) and number == 2 and self.engine._process:
            os.kill(self.engine._process.pid, signal.SIGKILL)

    def trial_ended(self, plan: Plan, status: str, seconds: float) -> None: ...


def rehearse(engine: Engine, runs: Path) -> FinishedRun:
    path = find_scenario("smoke")
    source = ScenarioFile(load_scenario(path, {"repeats": "2", "workload.epochs": "1"}), path.read_text(), "")
    return run_scenario(source, EngineChoice(engine, "asked for"), runs, Onlooker(engine))


@pytest.mark.parametrize("call", ["start", "shape", "start_training", "exit_codes", "stop", "run"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TrialFailed("no answer"), "no answer"),
        (TimeoutError("late"), "TimeoutError: late"),
        (HostError("images/build cuda failed"), "HostError: images/build cuda failed"),
    ],
)
def test_a_trial_that_fails_is_reported_and_the_others_run(
    tmp_path: Path, call: str, error: Exception, reason: str
) -> None:
    """A sweep of hours is worth keeping, whatever one of its trials ran into."""
    done = rehearse(Rehearsed({1: {call: error}}), tmp_path)

    assert not done.interrupted
    assert len(done.statuses) > 2
    assert [status.status for status in done.statuses].count("failed") == 1
    assert (done.statuses[1].status, done.statuses[1].reason) == ("failed", reason)
    written = [json.loads(file.read_text()) for file in sorted(done.folder.glob("trials/*/status.json"))]
    assert [each["status"] for each in written] == [status.status for status in done.statuses]


def test_what_could_not_be_removed_is_told_after_what_went_wrong(tmp_path: Path) -> None:
    """The failure of the removal must not hide why the trial failed."""
    done = rehearse(Rehearsed({0: {"start_training": TrialFailed("no gate"), "stop": OSError("no space")}}), tmp_path)

    assert done.statuses[0].reason == "no gate; OSError: no space"


def test_only_a_request_to_stop_ends_a_run(tmp_path: Path) -> None:
    """The trial that it interrupts says so."""

    class Asked(Rehearsed):
        def run_trial(self, plan: Plan, trial_folder: Path, observer: EventObserver) -> TrialOutcome:
            if self.count == 1:
                raise KeyboardInterrupt
            return super().run_trial(plan, trial_folder, observer)

    done = rehearse(Asked({}), tmp_path)

    assert done.interrupted
    last = json.loads(max(done.folder.glob("trials/*/status.json")).read_text())
    assert (last["status"], last["reason"]) == ("aborted", "interrupted")
    planned = json.loads((done.folder / "manifest.json").read_text())["trials"]
    assert planned[:2] == sorted(trial.name for trial in done.folder.glob("trials/*"))
    assert len(planned) > 2  # what was to come is on record as well


def test_a_network_that_the_engine_keeps_costs_no_trial_but_its_addresses(tmp_path: Path) -> None:
    """Docker may count endpoints of a network that has none, and refuse to remove it until it is restarted."""

    class Keeping(Rehearsed):
        asked = 0

        def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:
            self.asked += 1
            return super().choose_addresses(run_name, node_count)

        def run_trial(self, plan: Plan, trial_folder: Path, observer: EventObserver) -> TrialOutcome:
            kept = ("network of the first",) if self.count == 0 else ()
            return super().run_trial(plan, trial_folder, observer).model_copy(update={"kept": kept})

    engine = Keeping({})
    done = rehearse(engine, tmp_path)

    assert {status.status for status in done.statuses} == {"success"}
    assert engine.asked == 2  # for the run, and once more for what is left of it
    written = json.loads(min(done.folder.glob("trials/*/status.json")).read_text())
    assert written["kept"] == ["network of the first"]


def test_a_simulator_that_has_died_is_started_again(tmp_path: Path) -> None:
    """At most the trial fails that it died in."""
    done = rehearse(SimulatedEngine(), tmp_path)

    assert all(status.status == "success" for status in (done.statuses[0], *done.statuses[2:]))


def test_latest_is_the_run_that_was_started_last(tmp_path: Path) -> None:
    """And nothing else lies beside it."""
    rehearse(Rehearsed({}), tmp_path)
    done = rehearse(Rehearsed({}), tmp_path)

    assert (tmp_path / "latest").resolve() == done.folder.resolve()
    assert {each.name for each in tmp_path.iterdir()} == {"latest", "smoke"}
