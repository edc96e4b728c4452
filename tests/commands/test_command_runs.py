"""Runs of small training scripts on engine `local`: sweeps, events, three ranks, and evaluations."""

import json
import statistics
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from scripted_engine import RunObserverStub

from analysis.checks.network.bytes_on_wire import check_bytes_sent
from analysis.checks.network.shaped_interface import check_shaped_interface
from analysis.checks.verdict import VerdictLevel, valid_verdict
from analysis.metrics.collectives import measure_collectives
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import read_trial_tables
from analysis.report.report import write_report
from compose.engines import EngineChoice, create_engine
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario

pytest.importorskip("torch", reason="the scripts need PyTorch; make test-torch installs it")
pytestmark = pytest.mark.torch

RunTrial: TypeAlias = Callable[..., Any]

SCRIPTS = Path("tests/commands/scripts").resolve()
STEPS, STEP_S = 20, 0.05
SCENARIO: dict[str, Any] = {
    "name": "mine",
    "workload": {
        "kind": "command",
        "command": f"python perceptron.py {{width}} {STEPS}",
        "folder": str(SCRIPTS),
        "variables": {"width": 16},
        "metrics": {"loss": "loss=([0-9.]+)"},
    },
    "cluster": {"workers": 2, "worker": {"throughput": f"{1 / STEP_S:g}/s", "memory": "1GiB"}},
    "strategies": {"script": {"kind": "command"}},
    "baseline": False,
}


def write_scenario(folder: Path, **keys: Any) -> Path:
    """Write the scenario with other values of some keys; JSON is YAML."""
    path = folder / "mine.yaml"
    path.write_text(json.dumps(SCENARIO | keys))
    return path


def parameter_bytes(width: int) -> int:
    return 4 * (8 * width + width + 2 * width + 2)


def test_a_variable_of_the_command_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value has a dry run of its own, so that its bytes are predicted, and a trial that uses it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sweep = {"width": {"paths": ["workload.variables.width"], "values": [16, 48]}}
    scenario = load_scenario(write_scenario(tmp_path, sweep=sweep))

    with closing(create_engine("local")) as engine:
        choice = EngineChoice(engine, "asked for")
        run = run_scenario(ScenarioFile(scenario, "", ""), choice, tmp_path / "runs", RunObserverStub())
    page = write_report(run.folder).read_text()
    trials = json.loads((run.folder / "summary.json").read_text())["trials"]

    assert {trial["labels"]["width"]: trial["status"] for trial in trials} == {16: "success", 48: "success"}
    for trial in trials:
        (called,) = trial["collectives"]
        size = parameter_bytes(trial["labels"]["width"])
        assert (called["operation"], called["bytes"], called["calls_per_step"]) == ("all_reduce", size, 1)
        assert called["predicted_s"] is not None
        assert trial["steps"] == STEPS
        assert trial["hidden_communication_seconds"] >= 0
    assert "Hidden and exposed communication per step" in page


@pytest.mark.wall_clock
def test_a_slowdown_in_the_middle_of_a_run_slows_its_worker_from_then_on(run_trial: RunTrial, tmp_path: Path) -> None:
    """The other worker computes as before, and waits for the slow one."""
    event = {"kind": "slowdown", "at": {"step": 10}, "of": ["worker-1"], "factor": 3}

    trial = run_trial("local", write_scenario(tmp_path, events=[event]), "script")

    steps = {rank: trial.rows(f"worker-{rank}", "node_steps") for rank in range(2)}
    compute_s = {
        (rank, is_after): statistics.median(row["compute_s"] for row in steps[rank][first:last])
        for rank in range(2)
        for is_after, first, last in ((False, 2, 10), (True, 10, STEPS))
    }
    assert compute_s == {
        (0, False): pytest.approx(STEP_S, rel=0.05),
        (0, True): pytest.approx(STEP_S, rel=0.05),
        (1, False): pytest.approx(STEP_S, rel=0.05),
        (1, True): pytest.approx(3 * STEP_S, rel=0.05),
    }
    waited_s = statistics.median(row["exchange_s"] for row in steps[0][10:STEPS])
    assert waited_s == pytest.approx(2 * STEP_S, rel=0.1)
    (applied,) = trial.events("worker-1", "event_applied")
    assert applied["value"]["kind"] == "slowdown"


@pytest.mark.parametrize("process_group", ["gloo", "ensayo"])
def test_three_ranks_train_one_model(run_trial: RunTrial, tmp_path: Path, process_group: str) -> None:
    """Three is no power of two, and no rank is the partner of another one."""
    cluster = SCENARIO["cluster"] | {"workers": 3}
    strategies = {"script": {"kind": "command", "process_group": process_group}}

    trial = run_trial("local", write_scenario(tmp_path, cluster=cluster, strategies=strategies), "script")

    sent = {f"worker-{rank}": pytest.approx(4 / 3 * parameter_bytes(16), rel=0.02) for rank in range(3)}
    assert trial.plan.bytes_per_step == sent
    assert len({digest for rank in range(3) for digest in trial.hashes(f"worker-{rank}").values()}) == 1
    for rank in range(3):
        assert trial.value(f"worker-{rank}", "node_stop")["steps"] == STEPS
        calls = [row for row in trial.rows(f"worker-{rank}", "node_collectives") if row["step"] >= 2]
        assert {(row["operation"], row["bytes"], row["group_size"]) for row in calls} == {
            ("all_reduce", parameter_bytes(16), 3)
        }
    (times,) = measure_collectives(read_trial_tables(TrialFolder(trial.folder)))
    assert times.calls_per_step == 1


@pytest.mark.parametrize("process_group", ["gloo", "ensayo"])
def test_bytes_of_batch_normalisation_are_predicted(
    run_trial: RunTrial, tmp_path: Path, engine: str, process_group: str
) -> None:
    """DDP broadcasts the means and variances of rank 0 in each step: the usual script for pictures."""
    workload = SCENARIO["workload"] | {"command": f"python normalised.py {STEPS}", "variables": {}, "metrics": {}}
    cluster = SCENARIO["cluster"] | {"workers": 3}
    strategies = {"script": {"kind": "command", "process_group": process_group}}
    path = write_scenario(tmp_path, workload=workload, cluster=cluster, strategies=strategies)

    trial = run_trial(engine, path, "script")

    broadcasts = [call for call in trial.plan.step_profile.collectives if call.operation == "broadcast"]
    parameters, statistics_bytes = 4 * (8 * 300 + 3 * 300 + 2 * 300 + 2), 4 * 2 * 300 + 8
    assert {call.root_rank for call in broadcasts} == {0}
    assert sum(call.bytes for call in broadcasts) == statistics_bytes
    sent = trial.plan.bytes_per_step
    assert sum(sent.values()) == pytest.approx(4 * parameters + 2 * statistics_bytes, rel=0.001)
    assert sent["worker-0"] == pytest.approx(4 / 3 * parameters + 2 * statistics_bytes, rel=0.01)
    tables = read_trial_tables(TrialFolder(trial.folder))
    assert check_bytes_sent(tables) == valid_verdict("bytes sent agree with the plan within 0.00%")
    assert check_shaped_interface(tables).level == VerdictLevel.VALID, "each rank sends at least what is counted"


def test_evaluations_and_averages_of_a_script_are_extra_collectives(run_trial: RunTrial, tmp_path: Path) -> None:
    """They are in no usual step, so the dry run leaves them out, and the trial counts them."""
    command = f"python evaluated_mlp.py {STEPS} 4 0.1 5"
    workload = SCENARIO["workload"] | {
        "command": command,
        "variables": {},
        "metrics": {"accuracy": "accuracy=([0-9.]+)"},
    }

    trial = run_trial("local", write_scenario(tmp_path, workload=workload), "script")

    assert {call.dtype for call in trial.plan.step_profile.collectives} == {"float32"}
    for rank in range(2):
        calls = [row for row in trial.rows(f"worker-{rank}", "node_collectives") if 2 <= row["step"] < STEPS]
        extra = [(row["step"], row["bytes"]) for row in calls if row["is_extra"]]
        assert extra == [(4, 8), (5, 4), (8, 8), (10, 4), (12, 8), (15, 4), (16, 8)]
        steps = trial.rows(f"worker-{rank}", "node_steps")
        after_evaluations = [row["step_s"] for row in steps if row["step"] in (4, 8, 12, 16)]
        assert max(after_evaluations) < STEP_S + 0.1
    verdict = check_bytes_sent(read_trial_tables(TrialFolder(trial.folder)))
    assert verdict == valid_verdict("bytes sent agree with the plan within 0.00%")
