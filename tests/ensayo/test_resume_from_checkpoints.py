"""An interrupted trial continues from its last checkpoint: its results are those of an uninterrupted trial."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ensayo
from compose.runs.trials import trial_attempts
from compose.runs.trials.trial_attempts import TrialSequence
from ensayo.exit_codes import ExitCode
from ensayo.terminal.progress_display import SilentDisplay
from services.plan import Plan
from services.runtime.run_log import LOG_LINE_PREFIX

pytestmark = pytest.mark.without_nodes

SCENARIO: dict[str, Any] = {
    "name": "resumed",
    "workload": {
        "dataset": {"kind": "digits"},
        "model": {"kind": "mlp", "hidden": [32]},
        "optimiser": {"kind": "momentum", "rate": 0.05},
        "batch": 128,
        "epochs": 4,
        "target": {"metric": "accuracy", "at_least": 0.8},
        "stop": "budget",
    },
    "cluster": {"workers": 2, "worker": {"throughput": "2000/s", "uplink": "50mbit", "downlink": "50mbit"}},
    "strategies": {"ring": {"kind": "all_reduce"}, "ps": {"kind": "parameter_server"}},
    "baseline": False,
    "attempts": 1,
    "recovery": {"checkpoint": {"steps": 7}},
}


class InterruptingObserver(SilentDisplay):
    """Observer that interrupts a run at an event of the second trial, after some step."""

    def __init__(self, key: str, step: int = 0) -> None:
        super().__init__(Console())
        self.key = key
        self.step = step

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        super().coordinator_event_logged(plan, log_event)
        is_due = log_event["key"] == self.key and log_event["metadata"]["step"] >= self.step
        if plan.label == "ps" and is_due:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return trials_of(ensayo.rehearse(SCENARIO, "simulated", tmp_path_factory.mktemp("runs")).folder)


def interrupt(folder: Path, **keys: Any) -> Path:
    """Run the scenario, interrupt its second trial after a checkpoint, and return the run folder."""
    observer = InterruptingObserver("checkpoint_complete", 14)
    interrupted = ensayo.rehearse(SCENARIO | keys, "simulated", folder, observer=observer)
    assert interrupted.exit_code == ExitCode.INTERRUPTED
    return interrupted.folder


def trials_of(run_folder: Path) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = json.loads((run_folder / "summary.json").read_text())["trials"]
    return trials


def logged_steps(trial_folder: Path) -> list[int]:
    """Steps in the log of the first worker."""
    lines = (trial_folder / "logs" / "worker-0.log").read_text().splitlines()
    events = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines)
    return [row[0] for event in events if event["key"] == "node_steps" for row in event["value"]["rows"]]


def checkpoints_of(run_folder: Path) -> list[Path]:
    """Folders of the complete checkpoints of the second trial, the oldest first.

    A node may have begun the next one before the run was interrupted.
    """
    return sorted(path.parent for path in run_folder.glob("trials/001-ps-*/checkpoints/step-*/manifest.json"))


def assert_same_results(trial: dict[str, Any], expected: dict[str, Any]) -> None:
    """Counts and parameters are equal; times in virtual time differ by the rounding of the logs."""
    for key in ("status", "steps", "samples", "params_sha256", "samples_to_target", "final", "evaluations"):
        assert trial[key] == expected[key], key
    for key in ("seconds", "time_to_target_s", "samples_per_second", "typical_step_seconds"):
        assert trial[key] == pytest.approx(expected[key], rel=1e-3), key
    assert trial["goodput"]["share"] == pytest.approx(expected["goodput"]["share"], abs=1e-3)


def test_a_resumed_attempt_that_the_host_disturbs_is_continued_again(
    tmp_path: Path, uninterrupted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long training on a busy host would begin anew after each disturbance."""
    folder = interrupt(tmp_path, attempts=2)
    *_, newest = checkpoints_of(folder)
    disturbances = iter(["other load on this host"])
    monkeypatch.setattr(TrialSequence, "_find_disturbance", lambda _self, _folder: next(disturbances, ""))
    monkeypatch.setattr(trial_attempts, "FIRST_PAUSE_S", 0.0)

    ensayo.resume(folder)

    trial = trials_of(folder)[1]
    assert trial["continued"] is not None
    assert trial["continued"]["step"] == int(newest.name[-8:])
    assert_same_results(trial, uninterrupted[1])


def test_an_interrupted_trial_continues_from_its_last_checkpoint(
    tmp_path: Path, uninterrupted: list[dict[str, Any]]
) -> None:
    """Samples, times, goodput and every bit of the parameters are those of a run that was never interrupted."""
    folder = interrupt(tmp_path)

    resumed = ensayo.resume(folder)

    trials = trials_of(folder)
    assert resumed.exit_code == ExitCode.OK
    for trial, expected in zip(trials, uninterrupted, strict=True):
        assert_same_results(trial, expected)
    continued = trials[1]["continued"]
    assert (trials[0]["continued"], continued["folder"]) == (None, "attempts/001-ps-w2-r0-1")
    assert continued["step"] >= 14
    assert continued["step"] % 7 == 0
    own_steps = logged_steps(folder / "trials" / "001-ps-w2-r0")
    assert own_steps == list(range(continued["step"], trials[1]["steps"]))  # no step before the checkpoint ran again
    [sentence] = resumed.continued_trials
    assert sentence == (
        f"001-ps-w2-r0: the trial was interrupted, and continued from the checkpoint after step {continued['step']}; "
        "its times and steps before the checkpoint are those of attempts/001-ps-w2-r0-1"
    )
    assert sentence in (folder / "report.html").read_text()


def test_a_trial_continues_from_a_checkpoint_after_an_interval_of_time(
    tmp_path: Path, uninterrupted: list[dict[str, Any]]
) -> None:
    """The time of the next checkpoint counts from the one with which the trial begins."""
    folder = interrupt(tmp_path, recovery={"checkpoint": {"interval": "300ms"}})
    _, *later = (path for path in checkpoints_of(folder) if int(path.name[-8:]) >= 14)
    for path in later:  # on a busy host, the simulation may have come close to its end
        shutil.rmtree(path)

    resumed = ensayo.resume(folder)

    assert resumed.exit_code == ExitCode.OK
    trials = trials_of(folder)
    assert trials[1]["continued"]["step"] >= 14
    assert (trials[1]["checkpoint_interval_s"], trials[1]["checkpoint_interval_steps"]) == (0.3, None)
    for trial, expected in zip(trials, uninterrupted, strict=True):
        assert_same_results(trial, expected)
    assert [path for path in checkpoints_of(folder) if int(path.name[-8:]) > trials[1]["continued"]["step"]]


def test_an_attempt_that_ended_before_it_logged_its_checkpoint_keeps_its_steps(
    tmp_path: Path, uninterrupted: list[dict[str, Any]]
) -> None:
    """The coordinator writes the manifest first. A run that was interrupted in between had lost all earlier steps."""
    folder = interrupt(tmp_path)
    log = folder / "trials" / "001-ps-w2-r0" / "logs" / "coordinator.log"
    lines = log.read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if '"key": "checkpoint_complete"' in line)
    log.write_text("".join(lines[:last]))

    resumed = ensayo.resume(folder)

    assert resumed.exit_code == ExitCode.OK, resumed.reasons
    assert_same_results(trials_of(folder)[1], uninterrupted[1])


def test_a_trial_that_is_interrupted_twice_has_the_results_of_all_attempts(
    tmp_path: Path, uninterrupted: list[dict[str, Any]]
) -> None:
    """The second attempt is interrupted before it has a checkpoint of its own."""
    folder = interrupt(tmp_path)
    assert ensayo.resume(folder, InterruptingObserver("training_continued")).exit_code == ExitCode.INTERRUPTED
    first_step = json.loads((folder / "trials/001-ps-w2-r0/plan.json").read_text())["continued"]["step"]
    for path in checkpoints_of(folder):
        if path.name != f"step-{first_step:08}":
            shutil.rmtree(path)

    ensayo.resume(folder)

    trial = trials_of(folder)[1]
    assert (trial["continued"]["folder"], trial["continued"]["step"]) == ("attempts/001-ps-w2-r0-2", first_step)
    assert_same_results(trial, uninterrupted[1])


@pytest.mark.parametrize("damage", ["altered data", "truncated", "altered manifest"])
def test_a_damaged_checkpoint_is_not_used_but_the_one_before(
    tmp_path: Path, damage: str, uninterrupted: list[dict[str, Any]]
) -> None:
    """The report names the damaged file."""
    folder = interrupt(tmp_path)
    *_, before, newest = checkpoints_of(folder)
    path = newest / ("manifest.json" if damage == "altered manifest" else "server-0.ckpt")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + (b"" if damage == "truncated" else b"x"))

    resumed = ensayo.resume(folder)

    trial = trials_of(folder)[1]
    assert f"step-{trial['continued']['step']:08}" == before.name
    assert_same_results(trial, uninterrupted[1])
    [reason] = trial["continued"]["unused_checkpoints"]
    assert f"{newest.name}/{path.name}: " in reason
    assert f"(not used: {reason})" in resumed.continued_trials[0]


def test_a_trial_whose_checkpoints_are_all_damaged_begins_anew(
    tmp_path: Path, uninterrupted: list[dict[str, Any]]
) -> None:
    folder = interrupt(tmp_path)
    checkpoints = checkpoints_of(folder)
    for path in checkpoints:
        (path / "worker-1.ckpt").unlink()

    resumed = ensayo.resume(folder)

    trial = trials_of(folder)[1]
    assert_same_results(trial, uninterrupted[1])
    assert len(trial["continued"]["unused_checkpoints"]) == len(checkpoints) >= 2
    assert logged_steps(folder / "trials/001-ps-w2-r0")[0] == 0
    assert "001-ps-w2-r0: the trial was interrupted, and began anew (not used: " in resumed.continued_trials[0]


def test_a_trial_with_events_begins_anew(tmp_path: Path) -> None:
    """Their times count from the start of a training, so they would come late after a checkpoint.

    The reason is the same for both interrupted attempts, and reported once.
    """
    slow = {"kind": "slowdown", "of": ["worker-1"], "factor": 2, "at": {"step": 3}, "lasts": "1s"}
    folder = interrupt(tmp_path, events=[slow])
    interrupted_again = ensayo.resume(folder, InterruptingObserver("checkpoint_complete", 14))
    assert interrupted_again.exit_code == ExitCode.INTERRUPTED

    ensayo.resume(folder)

    trial = trials_of(folder)[1]
    assert trial["continued"]["step"] == 0
    assert trial["continued"]["unused_checkpoints"] == [
        "checkpoints, because the times and steps of events count from the start of a training"
    ]
    assert logged_steps(folder / "trials/001-ps-w2-r0")[0] == 0


def test_a_changed_scenario_is_rejected_before_anything_starts(tmp_path: Path) -> None:
    """Parameters of a model with another batch would be mixed with those of the interrupted trial."""
    folder = interrupt(tmp_path)
    path = folder / "resolved.yaml"
    path.write_text(path.read_text().replace("batch: 128", "batch: 64"))
    statuses = sorted(folder.rglob("status.json"))

    with pytest.raises(ensayo.UserError, match=r"the scenario has changed since .* its plan differs in .*batch.*;"):
        ensayo.resume(folder)

    assert sorted(folder.rglob("status.json")) == statuses
    assert "resumed" not in json.loads((folder / "manifest.json").read_text())


@pytest.mark.serial  # it starts nodes
def test_a_killed_run_in_processes_continues_with_every_bit(
    tmp_path: Path, uninterrupted: list[dict[str, Any]]
) -> None:
    """SIGKILL ends the runner while its nodes train."""
    path = tmp_path / "resumed.yaml"
    path.write_text(json.dumps(SCENARIO))  # JSON is YAML
    command = [sys.executable, "-m", "ensayo", "run", str(path), "--engine", "local", "--runs", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (manifests := list(tmp_path.glob("resumed/*/trials/001-*/checkpoints/step-*/manifest.json"))):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    folder = manifests[0].parents[4]

    ensayo.resume(folder)

    trial = trials_of(folder)[1]
    assert trial["status"] == "success", trial["status_reason"]
    assert trial["continued"]["step"] >= 7
    for key in ("steps", "samples", "params_sha256", "samples_to_target", "final"):
        assert trial[key] == uninterrupted[1][key], key
