"""Step times on simulated networks with racks, regions, limited pairs and delays equal those computed by hand."""

from collections.abc import Callable
from statistics import mean, stdev
from typing import Any

import pytest

from services.cluster.links.fluid_link import MIN_FLUID_MESSAGE_BYTES, to_goodput_bytes_per_s

Simulate = Callable[..., Any]

# 1,228,810 parameters in fp32: 4.9 MB, so that one message counts little; 240 samples: 60 ms on each of four workers.
WORK = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [16384]}, "batch": 240, "epochs": 1}
COMPUTE_S = 0.06
MBIT = to_goodput_bytes_per_s(1e6)  # payload bytes per second
RING, SERVER = {"kind": "all_reduce"}, {"kind": "parameter_server"}


def cluster(link: str = "100mbit", **network: Any) -> dict[str, Any]:
    """Return a cluster with equal links, and the given network between them."""
    port = {"uplink": link, "downlink": link}
    return {"worker": {"throughput": "1000/s", **port}, "server": port, **network}


def step_s(trial: Any) -> float:
    """Return the mean step time of all workers, without the first step and the last one, whose batch is smaller."""
    return mean(row["step_s"] for rank in range(trial.plan.workers) for row in trial.steps(rank)[1:-1])


def ring_s(size: int, seconds_per_byte: float, delay_s: float = 0.0, workers: int = 4) -> float:
    """Return the step time of a ring: 2(n-1) rounds, each with 1/n of the vector."""
    return COMPUTE_S + 2 * (workers - 1) * (delay_s + size / workers * seconds_per_byte)


@pytest.mark.parametrize(
    ("uplink", "stride", "flows"),
    [("100mbit", 1, 1), ("100mbit", 2, 2), ("50mbit", 1, 1), ("50mbit", 2, 2), ("400mbit", 2, 0)],
)
def test_flows_that_leave_a_rack_share_its_uplink(simulate: Simulate, uplink: str, stride: int, flows: int) -> None:
    """With ranks in order, one flow of the ring leaves each rack of two; with stride 2, both flows do."""
    racks = {"network": {"kind": "racks", "size": 2, "uplink": uplink}}
    strategy = {"kind": "all_reduce", "collective": {"kind": "ring", "stride": stride}}

    trial = simulate(strategy, 4, cluster=cluster(**racks), **WORK)

    slowest_s_per_byte = max(1 / (100 * MBIT), flows / (int(uplink.removesuffix("mbit")) * MBIT))
    assert trial.plan.predicted.step_s == pytest.approx(ring_s(trial.plan.vector_bytes, slowest_s_per_byte))
    assert step_s(trial) == pytest.approx(trial.plan.predicted.step_s, rel=0.02)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_incast_time_is_proportional_to_the_number_of_workers(simulate: Simulate, workers: int) -> None:
    """All push to one server and pull from it, less one message per other worker: a port passes whole messages."""
    trial = simulate(SERVER, workers, cluster=cluster(), **WORK | {"batch": 60 * workers})

    whole_s = COMPUTE_S + 2 * workers * trial.plan.vector_bytes / (100 * MBIT)
    assert trial.plan.predicted.step_s == pytest.approx(whole_s)
    assert whole_s - (workers - 1) * MIN_FLUID_MESSAGE_BYTES / (100 * MBIT) - 1e-5 <= step_s(trial) <= whole_s + 1e-5


def test_workers_in_another_rack_than_the_server_share_its_rack_uplink(simulate: Simulate) -> None:
    """Two of four workers are in another rack than the server: their pushes share its uplink, half as fast."""
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "40mbit"}}

    trial = simulate(SERVER, 4, cluster=cluster(**racks), **WORK)

    whole_s = COMPUTE_S + 2 * 2 * trial.plan.vector_bytes / (40 * MBIT)
    assert trial.plan.predicted.step_s == pytest.approx(whole_s)
    assert step_s(trial) == pytest.approx(whole_s, rel=0.02)


def regions(**link: Any) -> dict[str, Any]:
    """Return a network of two regions with two workers each; the server is in the first region."""
    region_nodes = {"east": {"workers": [0, 1]}, "west": {"workers": [2, 3]}}
    return {"network": {"kind": "regions", "regions": region_nodes, "between": [{"regions": ["east", "west"], **link}]}}


@pytest.mark.parametrize("far", [[0, 1, 2, 3], [2, 3]], ids=["all", "two"])
def test_delay_between_regions_counts_twice_per_step(simulate: Simulate, far: list[int]) -> None:
    """Far workers wait for their push and for its reply. Near workers get replies earlier and push in the meantime.

    The formula ignores this overlap: it is exact if all workers are far, and otherwise an upper bound.
    """
    region_nodes = {"east": {"workers": [rank for rank in range(4) if rank not in far]}, "west": {"workers": far}}
    between = [{"regions": ["east", "west"], "delay": "200ms"}]
    network = {"network": {"kind": "regions", "regions": region_nodes, "between": between}}

    trial = simulate(SERVER, 4, cluster=cluster(**network), **WORK)

    whole_s = COMPUTE_S + 2 * 0.2 + 2 * 4 * trial.plan.vector_bytes / (100 * MBIT)
    assert trial.plan.predicted.step_s == pytest.approx(whole_s)
    assert step_s(trial) == pytest.approx(whole_s if len(far) == 4 else whole_s - 0.2, rel=0.02)


def test_delay_between_regions_counts_on_the_hops_of_a_ring_that_cross_it(simulate: Simulate) -> None:
    """Every chunk passes the ring once to be summed and once to be distributed: the time is the sum of its hops.

    The formula counts the longest hop in every round. This holds for a vector of one message per chunk; of a larger
    vector, several pieces are under way on the long hop at the same time.
    """
    trial = simulate(RING, 4, cluster=cluster("10gbit", **regions(delay="400ms")), **WORK | {"epochs": 2})

    chain_s = 2 * (1 + 2) / 2 * 0.4  # six hops; every second one is long
    assert chain_s <= step_s(trial) - COMPUTE_S <= 1.001 * (trial.plan.predicted.step_s - COMPUTE_S)


LINEAR = {  # 2 MB and little compute
    "dataset": {"kind": "synthetic_regression", "samples": 20, "features": 1024, "outputs": 512},
    "model": {"kind": "linear"},
    "batch": 4,
    "epochs": 1,
}
RACKS = {
    "oversubscribed": {"network": {"kind": "racks", "size": 2, "uplink": "50mbit"}},
    "slow rank": {"groups": [{"name": "slow", "ranks": [2], "uplink": "30mbit"}]},
    "far apart": {"network": {"kind": "racks", "size": 2, "uplink": "100mbit", "delay": "8ms"}},
}
COLLECTIVES = [
    {"kind": "ring", "order": "racks"},
    {"kind": "ring", "stride": 2},
    {"kind": "reduce_to_one"},
    {"kind": "reduce_to_one", "fused": False},
    {"kind": "hierarchical_copy"},
    {"kind": "tree"},
    {"kind": "double_tree"},
    {"kind": "recursive_doubling"},
    {"kind": "halving_doubling"},
    {"kind": "hierarchical"},
]


@pytest.mark.parametrize("network", RACKS)
@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda collective: "-".join(map(str, collective.values())))
def test_collective_takes_the_predicted_time_on_unequal_links(
    simulate: Simulate, collective: dict[str, Any], network: str
) -> None:
    """The prediction uses the bytes of every link and the latency of every chain, both from one transfer schedule.

    The double tree fills its pipeline later where only some of its edges are long, which the formula does not count.
    """
    strategy = {"kind": "all_reduce", "collective": collective}

    trial = simulate(strategy, 4, cluster=cluster(**RACKS[network]), **LINEAR)

    error = 0.2 if collective["kind"] == "double_tree" else 0.1
    assert step_s(trial) == pytest.approx(trial.plan.predicted.step_s, rel=error)


@pytest.mark.parametrize(("strategy", "flows"), [(RING, 1), (SERVER, 2)])
def test_flows_between_regions_share_their_link(simulate: Simulate, strategy: dict[str, Any], flows: int) -> None:
    """One flow of a ring goes from east to west; with a server in the east, both western workers pull over the link."""
    trial = simulate(strategy, 4, cluster=cluster(**regions(rate="20mbit")), **WORK)

    size = trial.plan.vector_bytes
    whole_s = ring_s(size, 1 / (20 * MBIT)) if strategy == RING else COMPUTE_S + 2 * flows * size / (20 * MBIT)
    assert trial.plan.predicted.step_s == pytest.approx(whole_s)
    assert step_s(trial) == pytest.approx(whole_s, rel=0.02)


def test_limited_link_between_two_workers_slows_a_ring_but_not_a_server(simulate: Simulate) -> None:
    """The limit of a pair applies only to messages between these two nodes."""
    pair = {"links": [{"nodes": ["worker-1", "worker-2"], "rate": "25mbit"}]}
    ring, server, unlimited_server = (
        simulate(strategy, 4, cluster=cluster(**between), **WORK)
        for strategy, between in ((RING, pair), (SERVER, pair), (SERVER, {}))
    )

    assert step_s(ring) == pytest.approx(ring_s(ring.plan.vector_bytes, 1 / (25 * MBIT)), rel=0.02)
    assert step_s(server) == step_s(unlimited_server)


@pytest.mark.parametrize("strategy", [RING, SERVER], ids=["ring", "server"])
def test_network_does_not_change_the_bits_of_a_synchronous_result(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """Sums are formed in a fixed order, whatever the order of arrival: results on two networks differ only in time."""
    uneven_network = {
        "network": {"kind": "racks", "size": 2, "uplink": "3mbit", "delay": "7ms"},
        "links": [{"nodes": ["worker-0", "worker-3"], "rate": "1mbit", "delay": "30ms"}],
        "groups": [{"name": "odd", "ranks": [1], "uplink": "500kbit", "delay": "20ms"}],
    }
    jittery = {"delay": "20ms", "jitter": {"kind": "lognormal", "deviation": "15ms"}}
    uneven = cluster(**uneven_network)
    uneven["worker"] |= jittery
    events = [
        {"kind": "link", "of": ["worker-0"], "uplink": "300kbit", "delay": "50ms", "at": {"time": "1s"}, "lasts": "1s"},
        {"kind": "partition", "apart": ["worker-2"], "at": {"step": 3}, "lasts": "2s"},
    ]

    plain, disturbed = simulate(strategy, 4), simulate(strategy, 4, cluster=uneven, events=events)

    assert disturbed.value("coordinator", "params_sha256") == plain.value("coordinator", "params_sha256")
    assert step_s(disturbed) > 2 * step_s(plain)


def test_jitter_has_the_declared_distribution_and_follows_the_seed(simulate: Simulate) -> None:
    """Jitter belongs to the experiment: another seed draws other delays, the same seed the same ones."""
    asp = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    far = cluster("1gbit")
    far["worker"] |= {"delay": "50ms", "jitter": {"kind": "normal", "deviation": "10ms"}}

    first, repeated, other_seed = (simulate(asp, 1, cluster=far, epochs=40, seed=seed) for seed in (1, 1, 2))

    steps = [[row["step_s"] for row in trial.steps(0)] for trial in (first, repeated, other_seed)]
    assert steps[0] == steps[1] != steps[2]
    round_trips = [row["step_s"] - row["compute_s"] for row in first.steps(0)]
    assert mean(round_trips) == pytest.approx(0.1, rel=0.02)
    assert stdev(round_trips) == pytest.approx(0.01 * 2**0.5, rel=0.15)


def test_mean_staleness_is_the_same_with_and_without_jitter(simulate: Simulate) -> None:
    """Mean staleness is n-1 in any order of arrival: every update counts once for each other worker."""
    asp = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    far = cluster("1gbit")
    far["worker"] |= {"delay": "5ms", "jitter": {"kind": "lognormal", "deviation": "5ms"}}

    trial = simulate(asp, 4, cluster=far, epochs=100)

    rows = trial.rows("server-0", "shard_updates")
    staleness = [row["staleness"] for row in rows[len(rows) // 10 : -len(rows) // 10]]
    assert mean(staleness) == pytest.approx(3, rel=0.02)
    assert stdev(staleness) > 0.2
