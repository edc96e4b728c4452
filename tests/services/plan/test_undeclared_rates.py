"""Nodes without a declared link rate are named, where the links of others are limited."""

from typing import Any

import pytest

from services.cluster.addresses import DummyAddresses
from services.cluster.undeclared_rates import describe_undeclared_rates
from services.plan import make_plan
from services.scenario.scenario import Scenario

WORKER = {"throughput": "1000/s"}
BOTH = {"uplink": "10mbit", "downlink": "10mbit"}
SERVER_LINE = (
    "server-0: no rate declared, so its link is not limited; to limit it, declare cluster.server.uplink and "
    "cluster.server.downlink"
)


def lines(cluster: dict[str, Any], strategy: dict[str, Any] | None = None) -> list[str]:
    """Return the statements for a cluster of two workers."""
    workload = {
        "dataset": {"kind": "digits"},
        "model": {"kind": "mlp"},
        "optimiser": {"kind": "sgd", "rate": 0.1},
        "batch": 64,
    }
    document = {
        "name": "rates",
        "workload": workload,
        "cluster": {"workers": 2} | cluster,
        "strategies": {"tried": strategy or {"kind": "parameter_server"}},
        "baseline": False,
    }
    plan = make_plan(Scenario.decode(document).trials()[0], "run", "simulated", DummyAddresses())
    return list(describe_undeclared_rates(plan.nodes, plan.network))


def test_a_server_without_a_rate_is_named() -> None:
    """An unlimited server makes the parameter server look faster than it is on a real cluster."""
    assert lines({"worker": WORKER | BOTH}) == [SERVER_LINE]


@pytest.mark.parametrize(
    ("cluster", "strategy"),
    [
        ({"worker": WORKER | BOTH, "server": BOTH}, {"kind": "parameter_server"}),
        ({"worker": WORKER}, {"kind": "parameter_server"}),
        ({"worker": WORKER | BOTH}, {"kind": "all_reduce"}),
        ({"worker": WORKER | BOTH}, {"kind": "parameter_server", "placement": {"kind": "colocated"}}),
        ({"worker": WORKER | BOTH, "server": {"link": "1gbe"}}, {"kind": "parameter_server"}),
        (
            {
                "worker": WORKER | BOTH,
                "links": [{"nodes": [f"worker-{rank}", "server-0"], "rate": "10mbit"} for rank in range(2)],
            },
            {"kind": "parameter_server"},
        ),
    ],
    ids=["all rates declared", "no rate declared", "no server", "colocated", "named link", "limited pairs"],
)
def test_nothing_is_stated_if_no_link_stands_out(cluster: dict[str, Any], strategy: dict[str, Any]) -> None:
    """The statement would be wrong, or would state what the user has chosen for all nodes."""
    assert not lines(cluster, strategy)


def test_one_direction_without_a_rate_is_named() -> None:
    """The other direction is limited."""
    (line,) = lines({"worker": WORKER | BOTH, "server": {"uplink": "10mbit"}})

    assert line.startswith(
        "server-0: no downlink declared, so its link is not limited in this direction; to limit it, declare cluster."
    )


def test_a_server_that_one_pair_limits_is_named() -> None:
    """It still exchanges with the other worker as fast as the host can."""
    pair = {"nodes": ["worker-0", "server-0"], "rate": "10mbit"}

    assert lines({"worker": WORKER | BOTH, "links": [pair]}) == [SERVER_LINE]


def test_all_nodes_of_a_role_are_named_together() -> None:
    """A sweep of the number of workers would give a line for each number."""
    (line,) = lines({"worker": WORKER, "server": BOTH})

    assert line.startswith(
        "all workers: no rate declared, so their links are not limited; to limit them, declare cluster.worker."
    )
