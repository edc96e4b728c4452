"""Detection and diffusion in virtual time: workers together train as one, and the coordinator logs pictures."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.learning.sample_pictures import read_sample_pictures

Simulate = Callable[..., Any]

RING = {"kind": "all_reduce"}
SERVER = {"kind": "parameter_server", "servers": 1}
ADAM = {"kind": "adam", "rate": 0.01}
DETECTION = {
    "dataset": {"kind": "scenes", "samples": 100, "side": 16, "max_shapes": 2},
    "model": {"kind": "retinanet_mini", "width": 8},
    "optimiser": ADAM,
    "batch": 16,
    "epochs": 3,
}
DIFFUSION = {
    "dataset": {"kind": "digits", "objective": "denoising", "test_fraction": 0.9},
    "model": {"kind": "diffusion_mini", "width": 8, "steps": 100},
    "optimiser": ADAM,
    "batch": 16,
    "epochs": 1,
}

every_workload = pytest.mark.parametrize("workload", [DETECTION, DIFFUSION], ids=["detection", "diffusion"])


@every_workload
@pytest.mark.parametrize("strategy", [RING, SERVER, {**SERVER, "synchrony": {"kind": "asp"}}], ids=str)
def test_workload_trains_with_several_workers(
    simulate: Simulate, workload: dict[str, Any], strategy: dict[str, Any]
) -> None:
    """A smoke test of the whole path: shares of batches, exchange, evaluation, pictures."""
    trial = simulate(strategy, 2, **workload)

    losses = [row["loss"] for row in trial.steps(0)]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    pictures = read_sample_pictures(trial.value("coordinator", "sample_pictures"))
    assert pictures.content == ("detected" if workload is DETECTION else "generated")


@pytest.mark.parametrize("strategy", [RING, SERVER], ids=str)
def test_detection_with_several_workers_equals_serial_training(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """The loss of an image has its own divisor, so the gradient of a batch is the mean over shares of any size."""
    workload = {**DETECTION, "precision": "fp64", "optimiser": {"kind": "momentum", "rate": 0.01}}

    trial, serial = simulate(strategy, 3, **workload), simulate({"kind": "none"}, 1, **workload)

    np.testing.assert_allclose(trial.params, serial.params, rtol=1e-6, atol=1e-9)


def test_synchronous_strategies_train_the_same_diffusion_model(simulate: Simulate) -> None:
    """Noise depends on seed, step and rank, not on the strategy."""
    workload = {**DIFFUSION, "precision": "fp64"}

    ring, server = (simulate(strategy, 2, **workload) for strategy in (RING, SERVER))

    np.testing.assert_allclose(ring.params, server.params, rtol=1e-6, atol=1e-9)


def test_pictures_follow_the_end_of_the_run(simulate: Simulate) -> None:
    """Time to generate pictures must not count as training time."""
    trial = simulate({"kind": "none"}, 1, **DETECTION)

    keys = [line.split('"key": "')[1].split('"')[0] for line in trial.lines["coordinator"]]
    assert keys.index("sample_pictures") > keys.index("run_stop")


def test_a_diverged_model_has_no_pictures(simulate: Simulate) -> None:
    """Parameters that are not numbers generate no pictures; the run ends as it does for other models."""
    trial = simulate({"kind": "none"}, 1, **{**DETECTION, "optimiser": {"kind": "sgd", "rate": 1e9}})

    assert trial.events("coordinator", "run_stop")
    assert not trial.events("coordinator", "sample_pictures")


def test_models_without_pictures_log_none(simulate: Simulate) -> None:
    """A regression has nothing to show."""
    assert not simulate({"kind": "none"}, 1).events("coordinator", "sample_pictures")
