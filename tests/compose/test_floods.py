"""Rate, delay and message probes: what they send must be able to prove the declared limit in little time."""

from math import inf
from typing import Any

import pytest

from compose.engines.containers.engine import RunSubnets
from compose.shaping.link_state import data_network_nodes
from compose.shaping.probes import (
    expected_round_trip_times,
    group_parallel_probes,
    plan_message_time_probe,
    plan_rate_probes,
)
from compose.shaping.rate_probes import MAX_CONCURRENT_BPS, RateProbe
from services.cluster.network import ExpectedRoundTripTime
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario

pytestmark = pytest.mark.without_nodes

LINKS_100_MBIT = {"uplink": "100mbit", "downlink": "100mbit"}


def make_test_plan(
    workers: int, worker_settings: dict[str, Any], cluster_settings: Any = None, **scenario_keys: Any
) -> Plan:
    document = {
        "name": "any",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [1000]},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 1,
        },
        "cluster": {"workers": workers, "worker": worker_settings} | (cluster_settings or {}),
        "strategies": {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document | scenario_keys).trials()
    return make_plan(trial, "run", "docker", RunSubnets(data="10.64.0", control="10.64.1"))


@pytest.mark.parametrize("workers", [2, 3, 8, 16])
def test_every_link_is_tested_once_in_each_direction(workers: int) -> None:
    plan = make_test_plan(workers, LINKS_100_MBIT)

    tested_limits = [limit for probe in plan_rate_probes(plan).probes for limit in probe.limits]

    assert sorted(tested_limits) == sorted(
        (kind, node.name) for node in data_network_nodes(plan) for kind in ("uplink", "downlink")
    )


def test_a_downlink_is_probed_by_as_many_senders_as_fill_it() -> None:
    """One slow sender proves nothing about a fast port; a port with incast needs several senders."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    plan = make_test_plan(
        4, LINKS_100_MBIT, {"server": {"uplink": "300mbit", "downlink": "300mbit"}}, strategies=strategies
    )

    (probe,) = [probe for probe in plan_rate_probes(plan).probes if ("downlink", "server-0") in probe.limits]

    assert probe.rate_bps == 300e6
    assert len(probe.sources_by_target()["server-0"]) == 3


def test_a_link_that_no_peers_can_fill_is_probed_by_all_of_them() -> None:
    """A server of 1 Gbit/s has eight workers of 100 Mbit/s: no group of peers is faster than these eight together."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    fast_server = {"server": {"uplink": "1gbit", "downlink": "1gbit"}}
    probe_plan = plan_rate_probes(make_test_plan(8, LINKS_100_MBIT, fast_server, strategies=strategies))

    probes = {probe.name: probe for probe in probe_plan.probes}

    assert probe_plan.skipped == ()
    for direction in ("uplink", "downlink"):
        assert probes[f"server-0 {direction}"].rate_bps == pytest.approx(800e6)
        assert len(probes[f"server-0 {direction}"].flows) == 8
        assert not probes[f"server-0 {direction}"].fills_limit
    assert "its peers can send 800 Mbit/s in total" in probes["server-0 uplink"].describe_rate_mismatch(1e8, 1.0)


def test_each_sender_sends_little_more_than_its_own_link_can_carry() -> None:
    """Packets that suit the sum of all senders arrive in bursts from each; such a probe measured 6 % too much."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    servers = {"server": {"uplink": "1gbit", "downlink": "1gbit"}}
    plan = make_test_plan(4, LINKS_100_MBIT, servers, strategies=strategies, dilation=8.0)

    (downlink,) = (probe for probe in plan_rate_probes(plan).probes if probe.name == "server-0 downlink")

    assert downlink.rate_bps == pytest.approx(4 * 12.5e6)
    assert [downlink.send_rate_bps(*flow) for flow in downlink.flows] == pytest.approx([1.5 * 12.5e6] * 4)


def test_a_slow_sender_beside_a_fast_one_sends_packets_for_its_own_rate() -> None:
    """The sender chooses its packet size by the rate, so the rate of the fastest sender would cause bursts."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    settings = {
        "server": {"uplink": "1gbit", "downlink": "1gbit"},
        "groups": [{"name": "fast", "ranks": [0], "uplink": "800mbit", "downlink": "800mbit"}],
    }
    probes = plan_rate_probes(make_test_plan(4, LINKS_100_MBIT, settings, strategies=strategies, dilation=8.0)).probes

    for direction in ("uplink", "downlink"):
        (probe,) = (probe for probe in probes if probe.name == f"server-0 {direction}")
        workers = {flow: next(name for name in flow if name != "server-0") for flow in probe.flows}
        expected_bps = {flow: 1.5 * (100e6 if worker == "worker-0" else 12.5e6) for flow, worker in workers.items()}
        assert sorted(workers.values()) == ["worker-0", "worker-1", "worker-2"]  # these fill the server's link
        assert {flow: probe.send_rate_bps(*flow) for flow in probe.flows} == pytest.approx(expected_bps)


def test_a_limit_shared_by_senders_counts_once() -> None:
    """Two workers in the server's rack send 100 Mbit/s each; the other two share an uplink of 150 Mbit/s."""
    strategies = {"ps": {"kind": "parameter_server", "servers": 1}}
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "150mbit"}}
    fast_server = {"server": {"uplink": "1gbit", "downlink": "1gbit"}}
    probe_plan = plan_rate_probes(make_test_plan(4, LINKS_100_MBIT, racks | fast_server, strategies=strategies))

    (probe,) = [probe for probe in probe_plan.probes if ("downlink", "server-0") in probe.limits]

    assert probe.rate_bps == pytest.approx(350e6)
    assert not probe.fills_limit


def test_a_shared_uplink_is_probed_by_its_members() -> None:
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "150mbit"}}
    probes = {probe.name: probe for probe in plan_rate_probes(make_test_plan(4, LINKS_100_MBIT, racks)).probes}

    assert probes["rack-0 up"].flows == (("worker-0", "worker-2"), ("worker-1", "worker-3"))
    assert probes["rack-0 up"].rate_bps == 150e6


def test_a_shared_uplink_that_its_members_cannot_fill_is_not_probed() -> None:
    """Two members of 100 Mbit/s prove nothing about an uplink of 1 Gbit/s."""
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "1gbit"}}

    assert not [
        probe
        for probe in plan_rate_probes(make_test_plan(4, LINKS_100_MBIT, racks)).probes
        if probe.name.startswith("rack")
    ]


def test_links_that_are_too_fast_to_measure_are_not_probed() -> None:
    """A scenario without a bottleneck declares links that its host could never fill, and need not fill."""
    fast_links = {"uplink": "10gbit", "downlink": "10gbit"}

    probe_plan = plan_rate_probes(make_test_plan(4, fast_links))

    assert probe_plan.probes == ()
    assert len(probe_plan.skipped) == 8
    assert {reason for _, _, reason in probe_plan.skipped} == {
        "a probe of 10 Gbit/s in wall-clock time would measure this host, not the link"
    }
    assert plan_rate_probes(make_test_plan(4, fast_links, dilation=10.0)).probes


def test_concurrent_probes_share_no_node_and_fit_the_host() -> None:
    plan = make_test_plan(8, {"uplink": "600mbit", "downlink": "600mbit"})

    for concurrent_probes in group_parallel_probes(plan_rate_probes(plan).probes):
        nodes = [name for probe in concurrent_probes for name in probe.node_names]
        assert len(nodes) == len(set(nodes))
        assert len(concurrent_probes) == 1 or sum(probe.rate_bps for probe in concurrent_probes) <= MAX_CONCURRENT_BPS


@pytest.mark.parametrize(("workers", "limit_s"), [(8, 3.0), (16, 10.0)])
def test_probing_all_links_of_a_switch_takes_little_time(workers: int, limit_s: float) -> None:
    """The time is spent before every trial."""
    durations_s = [
        max(probe.duration_s for probe in concurrent_probes)
        for concurrent_probes in group_parallel_probes(plan_rate_probes(make_test_plan(workers, LINKS_100_MBIT)).probes)
    ]

    assert sum(durations_s) + 0.15 * len(durations_s) < limit_s


def test_dilation_reduces_the_rate_of_probes() -> None:
    probes = plan_rate_probes(make_test_plan(2, LINKS_100_MBIT, dilation=10.0)).probes

    assert {probe.rate_bps for probe in probes} == {10e6}


def test_a_lossy_path_is_not_probed() -> None:
    """The arriving rate would rightly be less than the declared rate."""
    probe_plan = plan_rate_probes(make_test_plan(2, LINKS_100_MBIT | {"loss": {"kind": "independent", "share": 0.1}}))

    assert probe_plan.probes == ()
    assert ("uplink", "worker-0", "the paths that could fill the link lose packets") in probe_plan.skipped


def test_a_round_trip_is_the_sum_of_both_directions_of_both_links() -> None:
    round_trips = expected_round_trip_times(make_test_plan(3, LINKS_100_MBIT | {"delay": "1ms"}))

    assert round_trips["worker-0"]["worker-1"].mean_s == pytest.approx(0.004)
    assert [len(peers) for peers in round_trips.values()] == [2, 1]


def test_round_trips_of_a_few_pairs_without_delay_are_measured_too() -> None:
    """Such pairs should have no delay, and only an echo can prove it."""
    round_trips = expected_round_trip_times(make_test_plan(16, LINKS_100_MBIT))

    assert sum(map(len, round_trips.values())) == 4
    assert {trip.mean_s for peers in round_trips.values() for trip in peers.values()} == {0.0}


def test_the_measured_round_trip_is_the_median_of_the_echoes() -> None:
    """A single late echo does not count as a delay. Where the declared delay varies, the mean is used instead."""
    assert ExpectedRoundTripTime(mean_s=0.002).estimate_round_trip_s([0.0021, 0.0022, 0.009]) == 0.0022
    assert ExpectedRoundTripTime(mean_s=0.002).estimate_round_trip_s([0.0021, 0.009, 0.009]) == 0.009
    assert ExpectedRoundTripTime(mean_s=0.002, deviation_s=0.001).estimate_round_trip_s([0.001, 0.003]) == 0.002
    assert ExpectedRoundTripTime(mean_s=0.002).estimate_round_trip_s([]) == inf


def test_round_trips_have_an_absolute_and_a_relative_tolerance() -> None:
    """Timers are late by a time of the host, and long paths by a share of their delay."""
    assert ExpectedRoundTripTime(mean_s=0.002).tolerance_s(0.001, time_dilation=1.0) == 0.001
    assert ExpectedRoundTripTime(mean_s=0.0).tolerance_s(0.001, time_dilation=16.0) == 0.001 / 16
    assert ExpectedRoundTripTime(mean_s=0.1).tolerance_s(0.001, time_dilation=1.0) == pytest.approx(0.005)
    assert ExpectedRoundTripTime(mean_s=0.1, deviation_s=0.03).tolerance_s(0.001, 1.0) == pytest.approx(
        0.005 + 0.12 / 6**0.5
    )


def test_the_slowest_rate_on_the_path_decides_the_time_of_a_message() -> None:
    message = plan_message_time_probe(
        make_test_plan(2, LINKS_100_MBIT, {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "50mbit"}]})
    )

    assert message is not None
    assert message.expected_s == pytest.approx(message.size_bytes * 8 / 50e6 * 1514 / 1448)


def test_a_rate_mismatch_is_reported_in_units_of_the_scenario() -> None:
    probe = RateProbe(name="x", limits=(), max_rates_bps={}, rate_bps=10e6)

    assert "declared 100 Mbit/s, but 50 Mbit/s arrived" in probe.describe_rate_mismatch(5e6, 10.0)
