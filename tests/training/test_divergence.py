"""Training that diverges: the coordinator's log states it, and no node prints a warning (pytest makes them errors)."""

from collections.abc import Callable
from math import isfinite
from typing import Any

import pytest

Simulate = Callable[..., Any]

RING, ASP = {"kind": "all_reduce"}, {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ring": RING,
    "ring, fp16": RING | {"compress": {"kind": "fp16"}},
    "bsp": {"kind": "parameter_server"},
    "asp": ASP,
    "asp, compensated": ASP | {"compensation": {"kind": "dc_asgd"}},
    "easgd": {"kind": "easgd"},
    "local_sgd": {"kind": "local_sgd", "period": 7},
    "switch": {"kind": "strategy_switch", "before": RING, "after": ASP, "when": {"kind": "at", "fraction": 0.5}},
}
ABSURD_RATE = 1e30


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_diverged_training_is_logged_as_aborted_with_the_reason(
    simulate: Simulate, strategy: str, optimiser: str
) -> None:
    """A model of NaN must not be logged as a success."""
    trial = simulate(STRATEGIES[strategy], 2, optimiser={"kind": optimiser, "rate": ABSURD_RATE})

    losses = [row["loss"] for rank in range(2) for row in trial.steps(rank)]
    assert not all(isfinite(loss) for loss in losses), "the learning rate is too low for this test"
    (stop,) = trial.events("coordinator", "run_stop")
    assert stop["metadata"]["diverged"]
    assert stop["metadata"]["status"] == "aborted"
    assert stop["metadata"]["reason"].startswith("training diverged: the ")


def test_the_reason_names_the_first_loss_that_is_not_finite(simulate: Simulate) -> None:
    trial = simulate(RING, 2, optimiser={"kind": "sgd", "rate": ABSURD_RATE}, epochs=3)

    (stop,) = trial.events("coordinator", "run_stop")
    assert " loss of epoch 1 is " in stop["metadata"]["reason"]


def test_training_that_converges_is_not_logged_as_diverged(simulate: Simulate) -> None:
    (stop,) = simulate(ASP, 2).events("coordinator", "run_stop")

    assert stop["metadata"]["diverged"] is False
    assert (stop["metadata"]["status"], stop["metadata"]["reason"]) == ("success", "budget used")
