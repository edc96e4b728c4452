"""Properties of post-local SGD: its two phases equal all_reduce and local_sgd, and nothing is lost at the switch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Simulate = Callable[..., Any]

EPOCH = 7  # steps
LINKS = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"}}
OPTIMISERS = [{"kind": "momentum", "rate": 0.05}, {"kind": "adam", "rate": 0.01}]


def post_local_sgd(period: int, **when: float) -> dict[str, Any]:
    return {"kind": "post_local_sgd", "period": period, "when": {"kind": "at", **when}}


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: optimiser["kind"])
def test_run_without_a_switch_equals_all_reduce_bitwise(simulate: Simulate, optimiser: dict[str, Any]) -> None:
    """The first phase is all_reduce with the same collective."""
    trial = simulate(post_local_sgd(4, fraction=1), 3, optimiser=optimiser)

    assert trial.params.tobytes() == simulate({"kind": "all_reduce"}, 3, optimiser=optimiser).params.tobytes()


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: optimiser["kind"])
def test_switch_before_the_first_step_equals_local_sgd_bitwise(simulate: Simulate, optimiser: dict[str, Any]) -> None:
    """The second phase is local_sgd with the same learning rate."""
    trial = simulate(post_local_sgd(4, step=0), 3, optimiser=optimiser)

    expected = simulate({"kind": "local_sgd", "period": 4}, 3, optimiser=optimiser)
    assert trial.params.tobytes() == expected.params.tobytes()


def test_period_of_one_equals_all_reduce_across_the_switch(simulate: Simulate) -> None:
    """With averaged momenta, steps after the switch are linear in the gradient, so nothing may change at the switch."""
    strategy = post_local_sgd(1, epoch=1) | {"average_optimiser_state": True}

    trial = simulate(strategy, 3, precision="fp64")

    expected = simulate({"kind": "all_reduce"}, 3, precision="fp64")
    np.testing.assert_allclose(trial.params, expected.params, rtol=1e-9, atol=1e-12)


def test_bytes_are_those_of_both_phases(simulate: Simulate) -> None:
    """Seven exchanges of gradients, then 14 local steps with a period of 4: four exchanges, one in the last step."""
    trial = simulate(post_local_sgd(4, epoch=1), 3, cluster=LINKS)

    plan, second = trial.plan, trial.plan.second_phase
    for node, per_step in plan.bytes_per_step.items():
        sent = trial.value(node, "node_stop")["payload_bytes_sent"]
        assert sent == EPOCH * per_step + 4 * 4 * second.bytes_per_step[node]
        assert sent == (EPOCH + 4) * per_step
    assert second.exchange_period == 4
    assert plan.message_timeout_s == 4 * plan.timeouts.step


def test_replicas_are_equal_before_the_switch_and_at_every_evaluation(simulate: Simulate) -> None:
    """After the switch, evaluations use the parameters of the last exchange."""
    trial = simulate(post_local_sgd(4, epoch=1), 3)

    digests: dict[int, set[str]] = {}
    for rank in range(3):
        for event in trial.events(f"worker-{rank}", "node_hash"):
            digests.setdefault(event["metadata"]["step"], set()).add(event["value"])
    assert sorted(digests) == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    assert all(len(values) == 1 for values in digests.values())


def test_each_phase_takes_its_predicted_step_time(simulate: Simulate) -> None:
    """The plan has one closed form per phase."""
    work = {"batch": 40, "epochs": 8, "model": {"kind": "mlp", "hidden": [512]}, "cluster": LINKS}
    trial = simulate(post_local_sgd(4, fraction=0.5), 4, **work)

    rows = [row for rank in range(4) for row in trial.steps(rank)]
    for predicted, is_after in ((trial.plan.predicted, False), (trial.plan.second_phase.predicted, True)):
        measured_s = np.mean([row["step_s"] for row in rows if (row["step"] >= 8) == is_after])
        assert measured_s == pytest.approx(predicted.step_s, rel=0.02)
