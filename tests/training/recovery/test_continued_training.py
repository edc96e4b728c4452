"""Trials in virtual time that continue from the checkpoint of an earlier trial, on the same or on other workers."""

from pathlib import Path
from typing import Any

import pytest
from recovering_trial import RecoveringTrial

from services.plan import COORDINATOR

CHECKPOINTS = {"checkpoint": {"steps": 24}}  # of 45 steps
ERROR_FEEDBACK = {"kind": "error_feedback", "inner": {"kind": "top_k", "ratio": 1.0}}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ring": {"kind": "all_reduce"},
    "tree": {"kind": "all_reduce", "collective": {"kind": "tree"}},
    "error feedback": {"kind": "all_reduce", "compress": ERROR_FEEDBACK},
    "bsp": {"kind": "parameter_server", "servers": 2},
    "local_sgd": {"kind": "local_sgd", "period": 1},
}


def continue_from(folder: Path) -> dict[str, Any]:
    return {"checkpoint": {"steps": 9, "initial": str(folder)}}


@pytest.mark.parametrize("name", STRATEGIES)
def test_another_trial_continues_with_every_bit_on_the_same_workers(name: str, tmp_path: Path) -> None:
    earlier = RecoveringTrial.run(STRATEGIES[name], CHECKPOINTS, [], tmp_path / "0")

    continued = RecoveringTrial.run(STRATEGIES[name], continue_from(tmp_path / "0"), [], tmp_path / "1")

    assert continued.first_logged_step == 24
    assert continued.params_sha256 == earlier.params_sha256
    assert continued.samples == earlier.budget


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
@pytest.mark.parametrize("name", STRATEGIES)
def test_training_continues_on_another_number_of_workers(name: str, workers: int, tmp_path: Path) -> None:
    """The global batch stays, so 4 workers with 4 samples each train like m workers with 16/m samples.

    Only the order of sums differs: losses differ by rounding of 64-bit numbers.
    """
    workload: dict[str, Any] = {"precision": "fp64"}
    if name == "local_sgd":  # each worker has a momentum of its own, which depends on its samples
        workload["optimiser"] = {"kind": "sgd", "rate": 0.02}
    earlier = RecoveringTrial.run(STRATEGIES[name], CHECKPOINTS, [], tmp_path / "0", **workload)

    continued = RecoveringTrial.run(
        STRATEGIES[name], continue_from(tmp_path / "0"), [], tmp_path / "1", workers, **workload
    )

    assert continued.first_logged_step == 24
    assert continued.plan.workers == workers
    assert continued.samples == earlier.budget
    assert continued.final_loss == pytest.approx(earlier.final_loss, rel=1e-12)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_continued_trial_goes_back_to_its_first_checkpoint(name: str, tmp_path: Path) -> None:
    """The checkpoint with which it begins stays complete, although it is due at the first step (24) of the trial."""
    RecoveringTrial.run(STRATEGIES[name], CHECKPOINTS, [], tmp_path / "0")
    checkpoint = {"steps": 8, "initial": str(tmp_path / "0")}
    recovery = {"on_failure": "restore", "restart_delay": "200ms", "checkpoint": checkpoint}
    loss = {"kind": "kill", "of": ["worker-1"], "at": {"step": 26}}

    undisturbed = RecoveringTrial.run(STRATEGIES[name], recovery, [], tmp_path / "1")
    disturbed = RecoveringTrial.run(STRATEGIES[name], recovery, [loss], tmp_path / "2")

    assert [event["metadata"]["step"] for event in disturbed.events(COORDINATOR, "membership_recovery")] == [24]
    assert disturbed.params_sha256 == undisturbed.params_sha256
