"""Commands that need no PyTorch, on engines that run nodes as processes or containers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from compose.runs.supervisor import TrialFailed

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
