"""Checks of trials whose workers do not exchange in every step."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.checks.training.replicas import check_model_replicas_agree
from analysis.checks.verdict import VerdictLevel
from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent
from analysis.reading.run_table import RunLogTables

RunSimulated = Callable[..., RunLogTables]

STRATEGIES: dict[str, dict[str, Any]] = {
    "local_sgd": {"kind": "local_sgd", "period": 5, "average_optimiser_state": True},
    "diloco": {"kind": "diloco", "period": 5},
    "streaming": {"kind": "diloco", "period": 15, "fragments": 3, "overlap_steps": 4},
    "uneven": {"kind": "diloco", "period": 7, "fragments": 4, "overlap_steps": 0.5},
    "post_local_sgd": {"kind": "post_local_sgd", "period": 4, "when": {"kind": "at", "step": 3}},
    "to_diloco": {
        "kind": "strategy_switch",
        "after": {"kind": "diloco", "period": 4},
        "when": {"kind": "at", "step": 3},
    },
}
REACHED_AT_ONCE = {"metric": "accuracy", "at_least": 0.01}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("target", [None, REACHED_AT_ONCE], ids=["whole budget", "stops early"])
def test_replicas_and_bytes_agree_with_the_plan_between_exchanges(
    run_simulated: RunSimulated, name: str, target: dict[str, Any] | None
) -> None:
    """The budget of 48 steps and the first evaluation, after 17 steps, both end between two exchanges.

    The last step of the budget ends with an exchange; a run that stops early does not.
    """
    workload = {"batch": 90, "epochs": 3, "evaluate_every": 1500, "target": target}

    (trial,) = run_simulated({name: STRATEGIES[name]}, workload=workload).trials

    assert trial.steps["step"].max() + 1 == (17 if target else 48)
    assert check_model_replicas_agree(trial).level == VerdictLevel.VALID
    sent = bytes_sent(trial)
    assert all(sent.values())
    for node, expected in expected_bytes_sent(trial).items():
        assert sent[node] == pytest.approx(expected, rel=0.01)
