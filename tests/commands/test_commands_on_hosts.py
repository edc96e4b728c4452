"""Commands that need no PyTorch, on engines that run nodes as processes or containers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from command_plans import make_step_profile

from compose.runs.trials.node_runner import TrialFailed
from services.scenario.commands import step_profile
from services.scenario.commands.step_profile import StepProfileOutcome

RunTrial: TypeAlias = Callable[..., Any]

SCRIPT = """
import json, os, pathlib, sys
rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
pathlib.Path("written.txt").write_text("a command may write into its folder")
if len(sys.argv) > 1 and sys.argv[1] == "fail" and rank == 1:
    print("the last words")
    sys.exit(3)
if len(sys.argv) > 1 and sys.argv[1] == "crash" and rank == 1:
    os.abort()
if len(sys.argv) > 1 and sys.argv[1] == "talk":
    line = "x" * 999
    for _ in range(100_000):
        print(line)
if len(sys.argv) > 1 and sys.argv[1] == "rights":
    status = pathlib.Path("/proc/self/status").read_text()
    print("capabilities=" + status.partition("CapEff:")[2].split()[0])
    print("uid=" + str(os.getuid()))
    print("interfaces=" + " ".join(sorted(os.listdir("/sys/class/net"))))
    host_files = ("/etc/shadow", "/var/run/docker.sock", "HOST_FILE")
    print("files=" + " ".join(path for path in host_files if os.access(path, os.R_OK)))
    try:
        pathlib.Path("/opt/new").write_text("")
    except OSError as error:
        print(f"write={type(error).__name__} {error.strerror}")
if len(sys.argv) > 1 and sys.argv[1] == "outside":
    pathlib.Path("/opt/new").write_text("")
for epoch in range(3):
    print(f"rank {rank} of {workers}, epoch {epoch}: accuracy={0.5 + epoch / 10:.2f}", flush=True)
print(json.dumps({name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "PET_NNODES", "TF_CONFIG")}))
"""

SCENARIO = """
name: mine
workload:
  kind: command
  command: [python, script.py, {word}]
  metrics: {{accuracy: "accuracy=([0-9.]+)"}}
  target: {{metric: accuracy, at_least: 0.6}}
cluster: {{workers: 2, worker: {{memory: 512MiB}}}}
strategies: {{script: {{kind: command}}}}
baseline: false
"""


def write_scenario(folder: Path, word: str) -> Path:
    (folder / "script.py").write_text(SCRIPT)
    path = folder / "mine.yaml"
    path.write_text(SCENARIO.format(word=word))
    folder.chmod(0o755)
    return path


def test_every_rank_runs_the_command_with_the_variables_of_usual_launchers(
    run_trial: RunTrial, tmp_path: Path, engine: str
) -> None:
    """A script that reads its rank from the environment works without a change."""
    trial = run_trial(engine, write_scenario(tmp_path, "normal"), "script")

    outputs = [(trial.folder / f"logs/worker-{rank}.err").read_text() for rank in range(2)]
    settings = [json.loads(output.strip().splitlines()[-1]) for output in outputs]
    clusters = [json.loads(each["TF_CONFIG"]) for each in settings]
    assert [f"rank {rank} of 2, epoch 2" in outputs[rank] for rank in range(2)] == [True, True]
    assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in settings}) == 1
    assert [each["task"] for each in clusters] == [{"type": "worker", "index": rank} for rank in range(2)]
    assert not (tmp_path / "written.txt").exists(), "what a command writes does not change the user's folder"


def test_metrics_of_rank_0_become_evaluations_and_reach_the_target(
    run_trial: RunTrial, tmp_path: Path, engine: str
) -> None:
    """The lines of a script are all that is known of its quality; other ranks print the same lines."""
    trial = run_trial(engine, write_scenario(tmp_path, "normal"), "script")

    values = [event["value"] for event in trial.events("coordinator", "eval_metrics")]
    (end,) = trial.events("coordinator", "run_stop")
    assert values == [{"accuracy": 0.5}, {"accuracy": 0.6}, {"accuracy": 0.7}]
    assert end["metadata"]["target_reached"]
    assert end["metadata"]["status"] == "success"


@pytest.mark.parametrize(
    ("word", "how"),
    [
        ("fail", "the command of worker-1 ended with exit code 3; its last line is: the last words"),
        ("crash", "the command of worker-1 was ended by signal 6"),
    ],
)
def test_a_command_that_fails_makes_the_trial_fail_and_is_named(
    run_trial: RunTrial, tmp_path: Path, engine: str, word: str, how: str
) -> None:
    """Other ranks would wait for the failed one for half an hour."""
    with pytest.raises(TrialFailed, match=how):
        run_trial(engine, write_scenario(tmp_path, word), "script")


def test_a_program_that_is_missing_is_named(run_trial: RunTrial, tmp_path: Path, engine: str) -> None:
    """The node's image does not have all programs of the host."""
    path = write_scenario(tmp_path, "normal")
    path.write_text(path.read_text().replace("python", "no-such-program"))

    with pytest.raises(TrialFailed, match="no-such-program can't be started: No such file or directory"):
        run_trial(engine, path, "script")


@pytest.mark.docker
def test_a_command_has_no_more_rights_than_a_worker(run_trial: RunTrial, tmp_path: Path, docker_engine: object) -> None:
    """It has no capability, only the two networks of the trial, and no file of the host but what is mounted."""
    (tmp_path / "outside").mkdir()
    secret = tmp_path / "outside" / "secret.txt"
    secret.write_text("not for scripts")
    folder = tmp_path / "mine"
    folder.mkdir()
    path = write_scenario(folder, "rights")
    script = folder / "script.py"
    script.write_text(script.read_text().replace("HOST_FILE", str(secret)))

    trial = run_trial("docker", path, "script")

    output = (trial.folder / "logs/worker-1.err").read_text()
    assert "capabilities=0000000000000000\n" in output
    assert "uid=0\n" not in output
    assert "interfaces=eth0 eth1 lo\n" in output
    assert "files=\n" in output
    assert "write=OSError Read-only file system\n" in output


@pytest.mark.docker
def test_a_command_that_writes_outside_its_folder_fails_with_the_cause(
    run_trial: RunTrial, tmp_path: Path, docker_engine: object
) -> None:
    """Only its own folder is writable."""
    reason = r"exit code 1; its last line is: OSError.*Read-only file system: '/opt/new'; write below the current"
    with pytest.raises(TrialFailed, match=reason):
        run_trial("docker", write_scenario(tmp_path, "outside"), "script")


def test_endless_output_is_cut_and_its_metrics_still_count(run_trial: RunTrial, tmp_path: Path, engine: str) -> None:
    """A script that prints 100 MB must not fill the disk of the host."""
    trial = run_trial(engine, write_scenario(tmp_path, "talk"), "script")

    output = trial.folder / "logs/worker-0.err"
    assert output.stat().st_size < 18 << 20
    assert "ensayo: further output is left out" in output.read_text()
    assert trial.events("coordinator", "run_stop")[0]["metadata"]["target_reached"]


def test_a_script_that_never_makes_its_process_group_is_named(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other ranks would wait for it for half an hour."""
    profile = make_step_profile(("all_reduce", 8), launch_shares=(0.5,))
    monkeypatch.setattr(step_profile, "_profilers", [lambda *_: StepProfileOutcome(profile)])
    monkeypatch.setattr("compose.scenario_files.load.install_step_profiler", lambda _: None)
    path = write_scenario(tmp_path, "normal")
    (tmp_path / "script.py").write_text("import time\ntime.sleep(60)\n")

    with pytest.raises(TrialFailed, match=r"has made no process group within 3 s.*increase timeouts.start"):
        run_trial("local", path, "script", timeouts__start="3s")


def test_lines_mark_the_steps_of_other_frameworks(run_trial: RunTrial, tmp_path: Path) -> None:
    """Their collectives are not known, but the time from one line to the next is the step time."""
    path = write_scenario(tmp_path, "normal")
    path.write_text(path.read_text().replace("  metrics:", "  step_line: ^step\n  metrics:"))
    script = (
        "import time\nfor step in range(8):\n    time.sleep(0.1)\n    print('step', step, 'accuracy=0.7', flush=True)\n"
    )
    (tmp_path / "script.py").write_text(script)

    trial = run_trial("local", path, "script")

    steps = [row["step_s"] for row in trial.rows("worker-1", "node_steps")]
    assert len(steps) == 7
    assert sorted(steps)[3] == pytest.approx(0.1, rel=0.2)
