"""Racks, regions, pairs, delays: a step on a simulated network takes what can be computed by hand."""

from collections.abc import Callable
from statistics import mean, stdev
from typing import Any

import pytest

from services.cluster.links.fluid_link import MIN_FLUID_MESSAGE_BYTES, goodput_bytes_per_s

Rehearse = Callable[..., Any]

# 1,228,810 parameters in fp32: 4.9 MB, so that one message counts little; 240 samples: 60 ms on each of four workers.
WORK = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [16384]}, "batch": 240, "epochs": 1}
COMPUTE_S = 0.06
MBIT = goodput_bytes_per_s(1e6)  # payload bytes per second
RING, SERVER = {"kind": "all_reduce"}, {"kind": "parameter_server"}


def cluster(link: str = "100mbit", **network: Any) -> dict[str, Any]:
    """Equal links, and what lies between them."""
    port = {"uplink": link, "downlink": link}
    return {"worker": {"throughput": "1000/s", **port}, "server": port, **network}


def step_s(done: Any) -> float:
    """Mean over all workers of steps after the first and before the last, whose batch is small."""
    return mean(row["step_s"] for rank in range(done.plan.workers) for row in done.steps(rank)[1:-1])


def ring_s(size: int, seconds_per_byte: float, delay_s: float = 0.0, workers: int = 4) -> float:
    """2(n-1) rounds of 1/n of the vector."""
    return COMPUTE_S + 2 * (workers - 1) * (delay_s + size / workers * seconds_per_byte)


@pytest.mark.parametrize(
    ("uplink", "stride", "flows"),
    [("100mbit", 1, 1), ("100mbit", 2, 2), ("50mbit", 1, 1), ("50mbit", 2, 2), ("400mbit", 2, 0)],
)
def test_a_rack_uplink_is_shared_by_the_flows_that_leave_the_rack(
    rehearse: Rehearse, uplink: str, stride: int, flows: int
) -> None:
    """Of a ring in order one flow leaves each rack of two; of a ring that jumps from rack to rack, all do."""
    racks = {"network": {"kind": "racks", "size": 2, "uplink": uplink}}
    strategy = {"kind": "all_reduce", "collective": {"kind": "ring", "stride": stride}}

    done = rehearse(strategy, 4, cluster=cluster(**racks), **WORK)

    slowest = max(1 / (100 * MBIT), flows / (int(uplink.removesuffix("mbit")) * MBIT))
    assert done.plan.predicted.step_s == pytest.approx(ring_s(done.plan.vector_bytes, slowest))
    assert step_s(done) == pytest.approx(done.plan.predicted.step_s, rel=0.02)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_incast_takes_as_many_times_as_long_as_there_are_workers(rehearse: Rehearse, workers: int) -> None:
    """All push to one server and pull from it; less a message per other worker, since a port passes whole messages."""
    done = rehearse(SERVER, workers, cluster=cluster(), **WORK | {"batch": 60 * workers})

    whole_s = COMPUTE_S + 2 * workers * done.plan.vector_bytes / (100 * MBIT)
    assert done.plan.predicted.step_s == pytest.approx(whole_s)
    assert whole_s - (workers - 1) * MIN_FLUID_MESSAGE_BYTES / (100 * MBIT) - 1e-5 <= step_s(done) <= whole_s + 1e-5


def test_racks_hold_back_a_server_and_its_workers(rehearse: Rehearse) -> None:
    """Two of four workers stand in another rack than the server: their pushes share its uplink, half as fast."""
    racks = {"network": {"kind": "racks", "size": 2, "uplink": "40mbit"}}

    done = rehearse(SERVER, 4, cluster=cluster(**racks), **WORK)

    whole_s = COMPUTE_S + 2 * 2 * done.plan.vector_bytes / (40 * MBIT)
    assert done.plan.predicted.step_s == pytest.approx(whole_s)
    assert step_s(done) == pytest.approx(whole_s, rel=0.02)


def regions(**link: Any) -> dict[str, Any]:
    """Two workers each; a server is with the first two."""
    there = {"east": {"workers": [0, 1]}, "west": {"workers": [2, 3]}}
    return {"network": {"kind": "regions", "regions": there, "between": [{"regions": ["east", "west"], **link}]}}


@pytest.mark.parametrize("far", [[0, 1, 2, 3], [2, 3]], ids=["all", "two"])
def test_a_delay_between_regions_is_waited_for_twice_unless_others_fill_it(rehearse: Rehearse, far: list[int]) -> None:
    """Far workers wait for their push and for its reply. Near ones have the reply earlier and push meanwhile.

    The formula takes no notice of that: it is exact when all are far, and else an upper bound.
    """
    there = {"east": {"workers": [rank for rank in range(4) if rank not in far]}, "west": {"workers": far}}
    between = [{"regions": ["east", "west"], "delay": "200ms"}]
    network = {"network": {"kind": "regions", "regions": there, "between": between}}

    done = rehearse(SERVER, 4, cluster=cluster(**network), **WORK)

    whole_s = COMPUTE_S + 2 * 0.2 + 2 * 4 * done.plan.vector_bytes / (100 * MBIT)
    assert done.plan.predicted.step_s == pytest.approx(whole_s)
    assert step_s(done) == pytest.approx(whole_s if len(far) == 4 else whole_s - 0.2, rel=0.02)


def test_two_regions_delay_a_ring_where_it_leaves_them(rehearse: Rehearse) -> None:
    """Every chunk goes once round to be summed and once to be spread: the ring is as long as its hops together.

    The formula counts the longest hop in every round. That holds for a vector of one message per chunk; of a larger
    one, pieces follow each other while the first of them are on their long way.
    """
    done = rehearse(RING, 4, cluster=cluster("10gbit", **regions(delay="400ms")), **WORK | {"epochs": 2})

    chain_s = 2 * (1 + 2) / 2 * 0.4  # six hops; every other one is long
    assert chain_s <= step_s(done) - COMPUTE_S <= 1.001 * (done.plan.predicted.step_s - COMPUTE_S)


LINEAR = {  # 2 MB and little mathematics
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


@pytest.mark.parametrize("between", RACKS)
@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda given: "-".join(map(str, given.values())))
def test_every_collective_takes_the_time_that_is_predicted_between_unequal_links(
    rehearse: Rehearse, collective: dict[str, Any], between: str
) -> None:
    """One schedule tells the bytes of every link and the waits of every chain; what follows must be what happens.

    Two trees fill later where only some of their edges are long, which the formula does not count.
    """
    strategy = {"kind": "all_reduce", "collective": collective}

    done = rehearse(strategy, 4, cluster=cluster(**RACKS[between]), **LINEAR)

    error = 0.2 if collective["kind"] == "double_tree" else 0.1
    assert step_s(done) == pytest.approx(done.plan.predicted.step_s, rel=error)


@pytest.mark.parametrize(("strategy", "flows"), [(RING, 1), (SERVER, 2)])
def test_the_link_between_regions_is_shared(rehearse: Rehearse, strategy: dict[str, Any], flows: int) -> None:
    """One flow of a ring goes from east to west, and both western workers pull from the east."""
    done = rehearse(strategy, 4, cluster=cluster(**regions(rate="20mbit")), **WORK)

    size = done.plan.vector_bytes
    whole_s = ring_s(size, 1 / (20 * MBIT)) if strategy == RING else COMPUTE_S + 2 * flows * size / (20 * MBIT)
    assert done.plan.predicted.step_s == pytest.approx(whole_s)
    assert step_s(done) == pytest.approx(whole_s, rel=0.02)


def test_a_link_between_two_workers_slows_the_ring_and_no_server(rehearse: Rehearse) -> None:
    """A pair's limit is of that pair alone: it lies inside both nodes' own limits."""
    pair = {"links": [{"nodes": ["worker-1", "worker-2"], "rate": "25mbit"}]}
    ring, server, free = (
        rehearse(strategy, 4, cluster=cluster(**between), **WORK)
        for strategy, between in ((RING, pair), (SERVER, pair), (SERVER, {}))
    )

    assert step_s(ring) == pytest.approx(ring_s(ring.plan.vector_bytes, 1 / (25 * MBIT)), rel=0.02)
    assert step_s(server) == step_s(free)


@pytest.mark.parametrize("strategy", [RING, SERVER], ids=["ring", "server"])
def test_no_network_changes_the_bits_of_a_strategy_in_lockstep(rehearse: Rehearse, strategy: dict[str, Any]) -> None:
    """Sums are formed in a fixed order, whoever comes late: so results of networks can be compared by time alone."""
    wild = {
        "network": {"kind": "racks", "size": 2, "uplink": "3mbit", "delay": "7ms"},
        "links": [{"nodes": ["worker-0", "worker-3"], "rate": "1mbit", "delay": "30ms"}],
        "groups": [{"name": "odd", "ranks": [1], "uplink": "500kbit", "delay": "20ms"}],
    }
    jittery = {"delay": "20ms", "jitter": {"kind": "lognormal", "deviation": "15ms"}}
    far = cluster(**wild)
    far["worker"] |= jittery
    events = [
        {"kind": "link", "of": ["worker-0"], "uplink": "300kbit", "delay": "50ms", "at": {"time": "1s"}, "lasts": "1s"},
        {"kind": "partition", "apart": ["worker-2"], "at": {"step": 3}, "lasts": "2s"},
    ]

    near, found = rehearse(strategy, 4), rehearse(strategy, 4, cluster=far, events=events)

    assert found.value("coordinator", "params_sha256") == near.value("coordinator", "params_sha256")
    assert step_s(found) > 2 * step_s(near)


def test_delays_vary_as_declared_and_the_same_way_for_the_same_seed(rehearse: Rehearse) -> None:
    """Jitter is a law of the experiment: another seed draws other delays, the same seed the same ones."""
    asp = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    far = cluster("1gbit")
    far["worker"] |= {"delay": "50ms", "jitter": {"kind": "normal", "deviation": "10ms"}}

    first, again, other = (rehearse(asp, 1, cluster=far, epochs=40, seed=seed) for seed in (1, 1, 2))

    steps = [[row["step_s"] for row in done.steps(0)] for done in (first, again, other)]
    assert steps[0] == steps[1] != steps[2]
    round_trips = [row["step_s"] - row["compute_s"] for row in first.steps(0)]
    assert mean(round_trips) == pytest.approx(0.1, rel=0.02)
    assert stdev(round_trips) == pytest.approx(0.01 * 2**0.5, rel=0.15)


def test_gradients_are_as_stale_under_jitter_as_without(rehearse: Rehearse) -> None:
    """Mean staleness n-1, whoever comes when: every update counts once for each other worker."""
    asp = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    far = cluster("1gbit")
    far["worker"] |= {"delay": "5ms", "jitter": {"kind": "lognormal", "deviation": "5ms"}}

    done = rehearse(asp, 4, cluster=far, epochs=100)

    rows = done.rows("server-0", "shard_updates")
    stale = [row["staleness"] for row in rows[len(rows) // 10 : -len(rows) // 10]]
    assert mean(stale) == pytest.approx(3, rel=0.02)
    assert stdev(stale) > 0.2
