"""Unmodified scripts of PyTorch, run as commands of a scenario in processes and containers."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

pytest.importorskip("torch", reason="the scripts need PyTorch; make test-torch installs it")
pytestmark = pytest.mark.torch

RunTrial: TypeAlias = Callable[..., Any]
RunRanks: TypeAlias = Callable[..., Any]

SCRIPTS = Path("tests/commands/scripts").resolve()
STEPS = 20
MODEL_BYTES = 4 * (64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10)  # of ddp_mlp.py
SCENARIO = """
name: mine
workload: {{kind: command, command: python ddp_mlp.py {steps}, folder: {folder}}}
cluster: {{workers: 2, worker: {{memory: 1GiB{worker}}}}}
strategies: {{script: {{kind: command{strategy}}}}}
baseline: false
dilation: {dilation}
"""
LINKS = ", uplink: 400mbit, downlink: 400mbit"


def write_scenario(folder: Path, worker: str = "", strategy: str = "", dilation: int = 1) -> Path:
    path = folder / "mine.yaml"
    text = SCENARIO.format(steps=STEPS, folder=SCRIPTS, worker=worker, strategy=strategy, dilation=dilation)
    path.write_text(text)
    return path


def digest_of(output: str) -> str:
    """Return the digest of the parameters that the script prints."""
    (digest,) = re.findall("params=([0-9a-f]{64})", output)
    return str(digest)


def digests_of(trial: Any) -> list[str]:
    return [digest_of((trial.folder / f"logs/worker-{rank}.err").read_text()) for rank in range(2)]


@pytest.fixture
def plain_digest(run_ranks: RunRanks) -> str:
    """Return the digest of the parameters of the script without Ensayo."""
    return digest_of(run_ranks("ddp_mlp.py", STEPS, is_metered=False)[0].output)


def test_parameters_are_those_of_the_script_without_ensayo(
    run_trial: RunTrial, tmp_path: Path, engine: str, plain_digest: str
) -> None:
    """Measuring, shaping, pacing and dilation change when things happen, and nothing else."""
    links = LINKS if engine == "docker" else ""
    digests = [
        digests_of(run_trial(engine, write_scenario(tmp_path, worker, dilation=dilation), "script"))
        for worker, dilation in (("", 1), (f", throughput: 20/s{links}", 1), (f", throughput: 20/s{links}", 2))
    ]

    assert digests == [[plain_digest] * 2] * 3


def test_ensayos_collectives_sum_as_gloo_does_on_two_ranks(
    run_trial: RunTrial, tmp_path: Path, engine: str, plain_digest: str
) -> None:
    """Two numbers have one sum, whichever rank adds them: the order of sums differs only from three ranks on."""
    path = write_scenario(tmp_path, LINKS, strategy=", process_group: ensayo")

    trial = run_trial(engine, path, "script")

    assert digests_of(trial) == [plain_digest] * 2
    assert trial.value("worker-0", "node_stop")["gloo_fallback_operations"] == []


def test_logged_collectives_are_those_of_the_dry_run(run_trial: RunTrial, tmp_path: Path, engine: str) -> None:
    """Predictions and the check of the host's capacity depend on it."""
    trial = run_trial(engine, write_scenario(tmp_path), "script")

    planned = [(call.operation, call.bytes) for call in trial.plan.step_profile.collectives]
    for rank in range(2):
        rows = trial.rows(f"worker-{rank}", "node_collectives")
        for step in range(2, STEPS):
            assert [(row["operation"], row["bytes"]) for row in rows if row["step"] == step] == planned
    assert sum(size for _, size in planned) == MODEL_BYTES
    assert trial.plan.bytes_per_step == {"worker-0": MODEL_BYTES, "worker-1": MODEL_BYTES}
    assert len(trial.hashes("worker-0")) == 1
    assert trial.hashes("worker-0") == trial.hashes("worker-1")


@pytest.mark.docker
def test_bytes_on_the_interface_are_those_of_the_collectives(
    run_trial: RunTrial, tmp_path: Path, docker_engine: object
) -> None:
    """What the metering counts is what the emulated network carries; headers take up to 2 %."""
    trial = run_trial("docker", write_scenario(tmp_path, LINKS), "script")

    totals = trial.value("worker-1", "node_stop")  # rank 0 also broadcasts the parameters at the start
    assert totals["payload_bytes_sent"] >= STEPS * MODEL_BYTES
    assert 1.0 < totals["interface_bytes_sent"] / totals["payload_bytes_sent"] < 1.02


def test_calls_that_gloo_runs_in_place_of_ensayo_are_marked(run_trial: RunTrial, tmp_path: Path) -> None:
    """Their times and bytes are those of another program, and on this engine nothing shapes them."""
    path = write_scenario(tmp_path, strategy=", process_group: ensayo")
    path.write_text(path.read_text().replace(f"ddp_mlp.py {STEPS}", "every_operation.py check"))

    trial = run_trial("local", path, "script")

    rows = trial.rows("worker-0", "node_collectives")
    of_gloo, of_ensayo = (
        {row["operation"] for row in rows if row["is_gloo_fallback"] == mark} for mark in (True, False)
    )
    assert {"reduce", "gather", "scatter"} <= of_gloo
    assert {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"} <= of_ensayo
    assert set(trial.value("worker-0", "node_stop")["gloo_fallback_operations"]) == of_gloo


def test_a_step_line_beside_measured_steps_counts_no_step_twice(run_trial: RunTrial, tmp_path: Path) -> None:
    """A command that torchrun starts has no dry run, and its steps are measured nevertheless."""
    path = write_scenario(tmp_path)
    command = f"torchrun perceptron.py 16 {STEPS}"
    text = path.read_text().replace(f"command: python ddp_mlp.py {STEPS}", f"command: {command}, step_line: ^loss=")
    path.write_text(text)

    trial = run_trial("local", path, "script")

    for rank in range(2):
        rows = trial.rows(f"worker-{rank}", "node_steps")
        assert [row["step"] for row in rows] == list(range(STEPS))
        assert trial.value(f"worker-{rank}", "node_stop")["steps"] == STEPS
        assert all(row["hidden_s"] is not None for row in rows), "the metering measured them"


def test_messages_may_take_as_long_as_the_time_limit_of_the_process_group(run_trial: RunTrial, tmp_path: Path) -> None:
    """A script that allows for a slow rank works with gloo, so it must work with Ensayo's collectives."""
    path = write_scenario(tmp_path, strategy=", process_group: ensayo")
    path.write_text(path.read_text().replace(f"ddp_mlp.py {STEPS}", "late_rank.py 4 8"))

    trial = run_trial("local", path, "script", timeouts__step="2s")

    assert (trial.folder / "logs/worker-0.err").read_text() == "sum=2\n"
