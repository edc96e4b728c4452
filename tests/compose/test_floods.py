"""What a probe sends must be able to show what it is to show, in little time."""

from typing import Any

import pytest

from compose.engines.docker import Subnets
from compose.shaping.floods import HOST_BPS, Flood, RoundTrip, message_of, plan_floods, round_trips, rounds
from compose.shaping.state import members
from services.plan import Plan, make_plan
from services.scenario import Scenario

LINKED = {"uplink": "100mbit", "downlink": "100mbit"}


def plan_of(workers: int, worker: dict[str, Any], cluster: Any = None, **keys: Any) -> Plan:
    document = {
        "name": "any",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [1000]},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 1,
        },
        "cluster": {"workers": workers, "worker": worker} | (cluster or {}),
        "strategies": {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document | keys).trials()
    return make_plan(trial, "run", "docker", Subnets(data="10.64.0", control="10.64.1"))


@pytest.mark.parametrize("workers", [2, 3, 8, 16])
def test_every_link_is_tested_once_in_each_direction(workers: int) -> None:
    plan = plan_of(workers, LINKED)

    tests = [test for flood in plan_floods(plan) for test in flood.tests]

    assert sorted(tests) == sorted((kind, node.name) for node in members(plan) for kind in ("uplink", "downlink"))


def test_a_downlink_is_filled_by_as_many_senders_as_it_takes() -> None:
    """One slow sender shows nothing of a fast port: incast needs several."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    plan = plan_of(4, LINKED, {"server": {"uplink": "300mbit", "downlink": "300mbit"}}, strategies=strategies)

    (flood,) = [flood for flood in plan_floods(plan) if ("downlink", "server-0") in flood.tests]

    assert flood.rate_bps == 300e6
    assert len(flood.by_target()["server-0"]) == 3


def test_a_shared_uplink_is_filled_by_its_members() -> None:
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "150mbit"}}
    floods = {flood.name: flood for flood in plan_floods(plan_of(4, LINKED, racks))}

    assert floods["rack-0 up"].flows == (("worker-0", "worker-2"), ("worker-1", "worker-3"))
    assert floods["rack-0 up"].rate_bps == 150e6


def test_what_nobody_can_fill_is_not_tested() -> None:
    """Two members of 100 Mbit/s say nothing of an uplink of 1 Gbit/s."""
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "1gbit"}}

    assert not [flood for flood in plan_floods(plan_of(4, LINKED, racks)) if flood.name.startswith("rack")]


def test_what_no_host_could_prove_is_not_tested() -> None:
    """A scenario without a bottleneck declares links that its host could never fill, and never has to."""
    assert plan_floods(plan_of(4, {"uplink": "10gbit", "downlink": "10gbit"})) == ()
    assert plan_floods(plan_of(4, {"uplink": "10gbit", "downlink": "10gbit"}, dilation=10.0))


def test_floods_at_the_same_time_meet_nowhere_and_fit_the_host() -> None:
    plan = plan_of(8, {"uplink": "600mbit", "downlink": "600mbit"})

    for together in rounds(plan_floods(plan)):
        nodes = [name for flood in together for name in flood.nodes]
        assert len(nodes) == len(set(nodes))
        assert len(together) == 1 or sum(flood.rate_bps for flood in together) <= HOST_BPS


@pytest.mark.parametrize(("workers", "limit_s"), [(8, 3.0), (16, 10.0)])
def test_the_probe_of_a_switch_takes_little_time(workers: int, limit_s: float) -> None:
    """It is paid before every trial."""
    taken = [max(flood.seconds for flood in together) for together in rounds(plan_floods(plan_of(workers, LINKED)))]

    assert sum(taken) + 0.15 * len(taken) < limit_s


def test_dilation_slows_down_what_is_sent() -> None:
    floods = plan_floods(plan_of(2, LINKED, dilation=10.0))

    assert {flood.rate_bps for flood in floods} == {10e6}


def test_a_lossy_path_is_not_flooded() -> None:
    """What arrives would be less than the rate, rightly."""
    assert plan_floods(plan_of(2, LINKED | {"loss": {"kind": "independent", "share": 0.1}})) == ()


def test_a_round_trip_is_the_sum_of_both_ways_of_both_links() -> None:
    found = round_trips(plan_of(3, LINKED | {"delay": "1ms"}))

    assert found["worker-0"]["worker-1"].mean_s == pytest.approx(0.004)
    assert [len(peers) for peers in found.values()] == [2, 1]


def test_waiting_for_the_hosts_cores_is_not_delay() -> None:
    """The least echo counts; where delays vary, their mean, and few echoes may be further off."""
    assert RoundTrip(mean_s=0.002).judged_by([0.0021, 0.009], 1.0) == 0.0021
    assert RoundTrip(mean_s=0.002, deviation_s=0.001).judged_by([0.001, 0.003], 1.0) == 0.002
    assert not RoundTrip(mean_s=0.002).allows(0.004, 0.001)
    assert RoundTrip(mean_s=0.1).allows(0.104, 0.001)


def test_a_message_takes_as_long_as_the_slowest_rate_on_its_way() -> None:
    message = message_of(plan_of(2, LINKED, {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "50mbit"}]}))

    assert message is not None
    assert message.seconds == pytest.approx(message.size * 8 / 50e6 * 1514 / 1448)


def test_a_complaint_is_in_units_of_the_scenario() -> None:
    flood = Flood(name="x", tests=(), flows=(), rate_bps=10e6)

    assert "declared 100 Mbit/s, 50 arrived" in flood.complaint(5e6, 10.0)
