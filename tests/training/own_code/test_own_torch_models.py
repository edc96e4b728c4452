"""Training of a user's module of PyTorch in virtual time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from user_code import torch_net

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WORK = {"model": torch_net("Values").model_dump(mode="json"), "batch": 13, "epochs": 4, "precision": "fp64"}


@pytest.mark.parametrize("workers", [2, 4])
def test_n_workers_train_a_module_as_one_worker_with_the_whole_batch(
    simulate: Callable[..., Any], workers: int
) -> None:
    """All workers of a simulation share one module in memory; each must compute with its own parameters."""
    serial, parallel = simulate({"kind": "none"}, 1, **WORK), simulate({"kind": "all_reduce"}, workers, **WORK)

    assert serial.plan.steps >= 20
    assert np.abs(serial.epoch_params[0] - serial.params).max() > 1e-3
    np.testing.assert_allclose(parallel.params, serial.params, rtol=1e-10, atol=1e-12)


def test_asynchronous_workers_train_a_module(simulate: Callable[..., Any]) -> None:
    """Each worker computes with parameters of another age."""
    strategy = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}

    losses = [row["loss"] for row in simulate(strategy, 3, **WORK).rows("worker-0", "node_steps")]

    assert sum(losses[-4:]) < sum(losses[:4])
