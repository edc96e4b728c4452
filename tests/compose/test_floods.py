"""What a probe sends must be able to show what it is to show, in little time."""

from math import inf
from typing import Any

import pytest

from compose.engines.containers.engine import RunSubnets
from compose.shaping.link_state import data_network_nodes
from compose.shaping.probes import (
    MAX_CONCURRENT_BPS,
    RateProbe,
    expected_round_trips,
    group_concurrent_probes,
    plan_message_probe,
    plan_rate_probes,
)
from services.cluster.network import ExpectedRoundTripTime
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario

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
    return make_plan(trial, "run", "docker", RunSubnets(data="10.64.0", control="10.64.1"))


@pytest.mark.parametrize("workers", [2, 3, 8, 16])
def test_every_link_is_tested_once_in_each_direction(workers: int) -> None:
    plan = plan_of(workers, LINKED)

    tests = [test for flood in plan_rate_probes(plan).probes for test in flood.limits]

    assert sorted(tests) == sorted(
        (kind, node.name) for node in data_network_nodes(plan) for kind in ("uplink", "downlink")
    )


def test_a_downlink_is_filled_by_as_many_senders_as_it_takes() -> None:
    """One slow sender shows nothing of a fast port: incast needs several."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    plan = plan_of(4, LINKED, {"server": {"uplink": "300mbit", "downlink": "300mbit"}}, strategies=strategies)

    (flood,) = [flood for flood in plan_rate_probes(plan).probes if ("downlink", "server-0") in flood.limits]

    assert flood.rate_bps == 300e6
    assert len(flood.sources_by_target()["server-0"]) == 3


def test_a_link_that_nobody_can_fill_is_flooded_by_all() -> None:
    """A server of 1 Gbit/s for eight workers of 100 Mbit/s: nothing here is faster than these eight together."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    fast = {"server": {"uplink": "1gbit", "downlink": "1gbit"}}
    found = plan_rate_probes(plan_of(8, LINKED, fast, strategies=strategies))

    floods = {flood.name: flood for flood in found.probes}

    assert found.skipped == ()
    for way in ("uplink", "downlink"):
        assert floods[f"server-0 {way}"].rate_bps == pytest.approx(800e6)
        assert len(floods[f"server-0 {way}"].flows) == 8
        assert not floods[f"server-0 {way}"].fills_limit
    assert "its peers can send 800 Mbit/s in total" in floods["server-0 uplink"].describe_rate_mismatch(1e8, 1.0)


def test_a_limit_that_senders_share_counts_once() -> None:
    """Two workers beside the server bring 100 each, two others behind an uplink of 150 no more than that together."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "150mbit"}}
    fast = {"server": {"uplink": "1gbit", "downlink": "1gbit"}}
    found = plan_rate_probes(plan_of(4, LINKED, racks | fast, strategies=strategies))

    (flood,) = [flood for flood in found.probes if ("downlink", "server-0") in flood.limits]

    assert flood.rate_bps == pytest.approx(350e6)
    assert not flood.fills_limit


def test_a_shared_uplink_is_filled_by_its_members() -> None:
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "150mbit"}}
    floods = {flood.name: flood for flood in plan_rate_probes(plan_of(4, LINKED, racks)).probes}

    assert floods["rack-0 up"].flows == (("worker-0", "worker-2"), ("worker-1", "worker-3"))
    assert floods["rack-0 up"].rate_bps == 150e6


def test_what_nobody_can_fill_is_not_tested() -> None:
    """Two members of 100 Mbit/s say nothing of an uplink of 1 Gbit/s."""
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "1gbit"}}

    assert not [flood for flood in plan_rate_probes(plan_of(4, LINKED, racks)).probes if flood.name.startswith("rack")]


def test_what_no_host_could_prove_is_not_tested() -> None:
    """A scenario without a bottleneck declares links that its host could never fill, and never has to."""
    fast = {"uplink": "10gbit", "downlink": "10gbit"}

    found = plan_rate_probes(plan_of(4, fast))

    assert found.probes == ()
    assert len(found.skipped) == 8
    assert {why for _, _, why in found.skipped} == {
        "a probe of 10 Gbit/s in wall-clock time would measure this host, not the link"
    }
    assert plan_rate_probes(plan_of(4, fast, dilation=10.0)).probes


def test_floods_at_the_same_time_meet_nowhere_and_fit_the_host() -> None:
    plan = plan_of(8, {"uplink": "600mbit", "downlink": "600mbit"})

    for together in group_concurrent_probes(plan_rate_probes(plan).probes):
        nodes = [name for flood in together for name in flood.node_names]
        assert len(nodes) == len(set(nodes))
        assert len(together) == 1 or sum(flood.rate_bps for flood in together) <= MAX_CONCURRENT_BPS


@pytest.mark.parametrize(("workers", "limit_s"), [(8, 3.0), (16, 10.0)])
def test_the_probe_of_a_switch_takes_little_time(workers: int, limit_s: float) -> None:
    """It is paid before every trial."""
    taken = [
        max(flood.duration_s for flood in together)
        for together in group_concurrent_probes(plan_rate_probes(plan_of(workers, LINKED)).probes)
    ]

    assert sum(taken) + 0.15 * len(taken) < limit_s


def test_dilation_slows_down_what_is_sent() -> None:
    floods = plan_rate_probes(plan_of(2, LINKED, dilation=10.0)).probes

    assert {flood.rate_bps for flood in floods} == {10e6}


def test_a_lossy_path_is_not_flooded() -> None:
    """What arrives would be less than the rate, rightly."""
    found = plan_rate_probes(plan_of(2, LINKED | {"loss": {"kind": "independent", "share": 0.1}}))

    assert found.probes == ()
    assert ("uplink", "worker-0", "the paths that could fill the link lose packets") in found.skipped


def test_a_round_trip_is_the_sum_of_both_ways_of_both_links() -> None:
    found = expected_round_trips(plan_of(3, LINKED | {"delay": "1ms"}))

    assert found["worker-0"]["worker-1"].mean_s == pytest.approx(0.004)
    assert [len(peers) for peers in found.values()] == [2, 1]


def test_a_few_pairs_without_a_delay_are_echoed_too() -> None:
    """Nothing should delay them, and only an echo can tell."""
    found = expected_round_trips(plan_of(16, LINKED))

    assert sum(map(len, found.values())) == 4
    assert {trip.mean_s for peers in found.values() for trip in peers.values()} == {0.0}


def test_echoes_that_are_late_once_are_no_delay_and_those_that_are_late_mostly_are() -> None:
    """The median counts; where delays vary, their mean."""
    assert ExpectedRoundTripTime(mean_s=0.002).estimate_round_trip_s([0.0021, 0.0022, 0.009]) == 0.0022
    assert ExpectedRoundTripTime(mean_s=0.002).estimate_round_trip_s([0.0021, 0.009, 0.009]) == 0.009
    assert ExpectedRoundTripTime(mean_s=0.002, deviation_s=0.001).estimate_round_trip_s([0.001, 0.003]) == 0.002
    assert ExpectedRoundTripTime(mean_s=0.002).estimate_round_trip_s([]) == inf


def test_timers_are_off_by_the_hosts_time_and_long_paths_by_a_share() -> None:
    assert ExpectedRoundTripTime(mean_s=0.002).tolerance_s(0.001, time_dilation=1.0) == 0.001
    assert ExpectedRoundTripTime(mean_s=0.0).tolerance_s(0.001, time_dilation=16.0) == 0.001 / 16
    assert ExpectedRoundTripTime(mean_s=0.1).tolerance_s(0.001, time_dilation=1.0) == pytest.approx(0.005)
    assert ExpectedRoundTripTime(mean_s=0.1, deviation_s=0.03).tolerance_s(0.001, 1.0) == pytest.approx(
        0.005 + 0.12 / 6**0.5
    )


def test_a_message_takes_as_long_as_the_slowest_rate_on_its_way() -> None:
    message = plan_message_probe(plan_of(2, LINKED, {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "50mbit"}]}))

    assert message is not None
    assert message.expected_s == pytest.approx(message.size_bytes * 8 / 50e6 * 1514 / 1448)


def test_a_complaint_is_in_units_of_the_scenario() -> None:
    flood = RateProbe(name="x", limits=(), flows=(), rate_bps=10e6)

    assert "declared 100 Mbit/s, but 50 Mbit/s arrived" in flood.describe_rate_mismatch(5e6, 10.0)
