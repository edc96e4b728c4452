"""Ranks that end before the others: the error names them, and not those that wait for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from compose.runs.trials.node_runner import TrialFailed

pytest.importorskip("torch", reason="the scripts need PyTorch; make test-torch installs it")
pytestmark = pytest.mark.torch

RunTrial: TypeAlias = Callable[..., Any]

SCRIPT = """
import sys
import torch
import torch.distributed as dist
rank, end = int(__import__("os").environ["RANK"]), sys.argv[1]
if rank == 1 and end == "before the group":
    sys.exit(0)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
optimiser = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    if rank == 1 and step == 12 and end == "amid training":
        sys.exit(0)
    if rank == 1 and step == 12 and end == "with an error":
        raise ValueError("no more samples")
    optimiser.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimiser.step()
if rank == 0 and end == "after training":
    raise ValueError("error of rank 0")
"""


def write_scenario(folder: Path, end: str, process_group: str, cluster: dict[str, Any]) -> Path:
    """Write a scenario whose rank 1 ends early; JSON is YAML."""
    (folder / "train.py").write_text(SCRIPT)
    scenario = {
        "name": "mine",
        "workload": {"kind": "command", "command": ["python", "train.py", end]},
        "cluster": {"workers": 2, "worker": {"memory": "1GiB", **cluster}},
        "strategies": {"script": {"kind": "command", "process_group": process_group}},
        "baseline": False,
        "timeouts": {"start": "60s", "step": "20s"},
    }
    folder.chmod(0o755)
    path = folder / "mine.yaml"
    path.write_text(json.dumps(scenario))
    return path


@pytest.mark.parametrize("process_group", ["gloo", "ensayo"])
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("amid training", "the command of worker-1 ended with exit code 0 after 12 steps, while another rank waited"),
        ("with an error", "the command of worker-1 ended with exit code 1; its last line is: .*ValueError: no more"),
    ],
)
def test_a_rank_that_ends_amid_training_is_named_first(
    run_trial: RunTrial, tmp_path: Path, engine: str, end: str, reason: str, process_group: str
) -> None:
    """The other rank fails, too, but only because its connection is closed."""
    path = write_scenario(tmp_path, end, process_group, {})

    with pytest.raises(TrialFailed, match=f"CommandFailed: {reason}"):
        run_trial(engine, path, "script")


@pytest.mark.parametrize("process_group", ["gloo", "ensayo"])
def test_a_rank_that_ends_before_its_process_group_fails_the_trial_at_once(
    run_trial: RunTrial, tmp_path: Path, process_group: str
) -> None:
    """The other ranks wait for it in the rendezvous, and would be named after `timeouts.start`."""
    path = write_scenario(tmp_path, "before the group", process_group, {"throughput": "20/s"})

    reason = "worker-1 ended with exit code .*: the command of worker-1 ended with exit code 0 without a process group"
    with pytest.raises(TrialFailed, match=reason):
        run_trial("local", path, "script")


def test_a_rank_that_fails_after_the_others_have_ended_is_named_itself(run_trial: RunTrial, tmp_path: Path) -> None:
    """Ranks may end at different times: an earlier end is not the cause of every later error."""
    path = write_scenario(tmp_path, "after training", "gloo", {})

    with pytest.raises(
        TrialFailed, match=r"CommandFailed: the command of worker-0 ended .* ValueError: error of rank 0"
    ):
        run_trial("local", path, "script")
