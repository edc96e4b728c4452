"""A trial that this host disturbed is repeated, whatever its results are; all attempts stay in the run folder."""

import json
from pathlib import Path

import pytest
from scripted_engine import RunObserverStub, ScriptedEngine, run_smoke_scenario

from compose.engines.base import TrialEventObserver
from compose.runs.trials import trial_attempts
from compose.runs.trials.node_runner import LinkProbeFailed, TrialFailed
from services.plan import Plan
from services.plan.trial_outcome import TrialOutcome

NO_PROBE = {"probe": LinkProbeFailed("worker-0 uplink: 80 instead of 100 Mbit/s")}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_attempts, "FIRST_PAUSE_S", 1e-4)


class RecordingObserver(RunObserverStub):
    """Observer that records which trials start, end and are repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.next_attempts: list[tuple[str, str, str]] = []
        self.pauses_s: list[float] = []
        self.started: list[str] = []
        self.ended: list[str] = []

    def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
        self.started.append(plan.trial)

    def trial_disturbed(self, plan: Plan, disturbance: str, next_attempt: str, pause_s: float) -> None:
        self.next_attempts.append((plan.trial, disturbance, next_attempt))
        self.pauses_s.append(pause_s)

    def trial_ended(self, plan: Plan, trial_status: str, wall_s: float) -> None:
        self.ended.append(plan.trial)


def outcomes_in(folder: Path) -> dict[str, TrialOutcome]:
    paths = sorted(folder.glob("*/status.json"))
    return {path.parent.name: TrialOutcome.model_validate_json(path.read_text()) for path in paths}


def test_a_trial_whose_links_failed_their_probe_is_repeated_until_they_pass(tmp_path: Path) -> None:
    observer = RecordingObserver()
    finished = run_smoke_scenario(ScriptedEngine({1: NO_PROBE, 2: NO_PROBE}), tmp_path, observer)

    trial = observer.started[1]
    assert [outcome.status for outcome in finished.statuses] == ["success"] * len(finished.statuses)
    assert observer.next_attempts == [
        (trial, "worker-0 uplink: 80 instead of 100 Mbit/s", "2 of 3"),
        (trial, "worker-0 uplink: 80 instead of 100 Mbit/s", "3 of 3"),
    ]
    assert observer.started == observer.ended  # each trial starts and ends once, however many attempts it took
    assert 0 < observer.pauses_s[0] < observer.pauses_s[1]
    kept = outcomes_in(finished.folder / "attempts")
    assert list(kept) == [f"{trial}-1", f"{trial}-2"]
    assert {outcome.status for outcome in kept.values()} == {"failed"}
    assert outcomes_in(finished.folder / "trials")[trial].disturbance == ""


def test_the_last_attempt_counts_even_if_the_host_disturbed_it(tmp_path: Path) -> None:
    """Choosing the best of the disturbed attempts would be a choice by result."""
    finished = run_smoke_scenario(ScriptedEngine({0: NO_PROBE, 1: NO_PROBE, 2: NO_PROBE}), tmp_path)

    first = finished.statuses[0]
    assert (first.status, bool(first.disturbance)) == ("failed", True)
    assert len(outcomes_in(finished.folder / "attempts")) == 2
    assert {outcome.status for outcome in finished.statuses[1:]} == {"success"}


def test_one_attempt_repeats_nothing(tmp_path: Path) -> None:
    finished = run_smoke_scenario(ScriptedEngine({0: NO_PROBE}), tmp_path, attempts="1")

    assert finished.statuses[0].status == "failed"
    assert not (finished.folder / "attempts").exists()


def test_a_trial_that_failed_for_another_reason_is_not_repeated(tmp_path: Path) -> None:
    """A node that ended with an error is a bug or a result, not a disturbance."""
    finished = run_smoke_scenario(ScriptedEngine({0: {"start_training": TrialFailed("worker-0 ended")}}), tmp_path)

    assert finished.statuses[0].status == "failed"
    assert not (finished.folder / "attempts").exists()


def test_a_successful_trial_is_repeated_if_its_checks_find_a_disturbance(tmp_path: Path) -> None:
    """The finder sees the folder with the outcome that the engine has written."""
    seen: list[str] = []

    def find_disturbance_once(trial_folder: Path) -> str:
        seen.append(json.loads((trial_folder / "status.json").read_text())["status"])
        return "9 % of the deadlines were missed" if len(seen) == 1 else ""

    finished = run_smoke_scenario(ScriptedEngine({}), tmp_path, None, find_disturbance_once)

    assert seen == ["success"] * (len(finished.statuses) + 1)
    [kept] = outcomes_in(finished.folder / "attempts").values()
    assert (kept.status, kept.disturbance) == ("success", "9 % of the deadlines were missed")


def test_a_repeated_trial_gets_new_addresses_after_a_network_was_kept(tmp_path: Path) -> None:
    """The addresses of a network that the engine could not remove are not free."""

    class NetworkKeepingEngine(ScriptedEngine):
        plans: list[Plan]

        def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
            self.plans = [*getattr(self, "plans", []), plan]
            kept = ("network of the first",) if self.started_trials == 0 else ()
            return super().run_trial(plan, trial_folder, observer).model_copy(update={"kept": kept})

    engine = NetworkKeepingEngine({0: NO_PROBE})
    run_smoke_scenario(engine, tmp_path)

    assert engine.plans[0].trial == engine.plans[1].trial
    assert engine.plans[0] is not engine.plans[1]
    assert engine.plans[2].trial != engine.plans[1].trial


def test_an_error_in_a_check_loses_no_trial(tmp_path: Path) -> None:
    """The report runs the checks again and raises the error when all trials have run."""

    def fail(_: Path) -> str:
        raise ZeroDivisionError

    finished = run_smoke_scenario(ScriptedEngine({}), tmp_path, None, fail)

    assert {outcome.status for outcome in finished.statuses} == {"success"}
    assert not (finished.folder / "attempts").exists()
