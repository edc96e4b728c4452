"""Training of a user's model: the laws of synchronous training hold for code that Ensayo does not know."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from user_code import perceptron

OWN = perceptron(hidden=5).model_dump(mode="json")
BUILT_IN = {"kind": "mlp", "hidden": [5], "activation": "tanh"}
WORK = {"batch": 13, "epochs": 4, "precision": "fp64"}
STRATEGIES = {
    "ring": {"kind": "all_reduce"},
    "two servers": {"kind": "parameter_server", "servers": 2},
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("workers", [2, 4])
def test_n_workers_train_a_users_model_as_one_worker_with_the_whole_batch(
    simulate: Callable[..., Any], strategy: dict[str, Any], workers: int
) -> None:
    """The last batch has two samples, so one rank of four has none: its zero gradient comes from Ensayo."""
    serial, parallel = simulate({"kind": "none"}, 1, model=OWN, **WORK), simulate(strategy, workers, model=OWN, **WORK)

    assert serial.plan.steps >= 20
    np.testing.assert_allclose(parallel.params, serial.params, rtol=1e-10, atol=1e-12)


def test_training_changes_the_parameters_of_a_users_model(simulate: Callable[..., Any]) -> None:
    """Equal parameters above prove nothing if they never change."""
    first, last = (simulate({"kind": "none"}, 1, model=OWN, **WORK).epoch_params[k] for k in (0, -1))

    assert np.abs(first - last).max() > 1e-3


def test_a_user_model_is_planned_like_a_built_in_model_of_the_same_size(simulate: Callable[..., Any]) -> None:
    """Bytes and predicted times depend on the sizes of the arrays, not on the code that computes the gradient."""
    own, built_in = (simulate({"kind": "all_reduce"}, 3, model=model, **WORK).plan for model in (OWN, BUILT_IN))

    assert own.parameters == built_in.parameters
    assert own.bytes_per_step == built_in.bytes_per_step
    assert own.predicted == built_in.predicted
