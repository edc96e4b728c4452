"""A plan follows from its scenario alone, predicts bytes and times of a run, and is stored without loss."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cluster.addresses import DummyAddresses
from services.collectives import Ring
from services.parameter_server.synchronisers import Asp, Bsp
from services.plan import Plan, decode_plan, make_plan
from services.runtime.device import GpuMemoryShare
from services.scenario.run_settings import EngineName
from services.scenario.scenario import Scenario
from services.strategies import AllReduce, ParameterServer, SinglePhaseStrategy, SingleWorker
from services.strategies.cost_model import CostModel

STRATEGIES: list[dict[str, Any]] = [
    {"kind": "none"},
    {"kind": "all_reduce"},
    {"kind": "parameter_server", "servers": 3},
    {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
]
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda keys: "-".join(map(str, keys.values())))


def plan(
    strategy: dict[str, Any], workers: int = 4, seed: int = 1, engine: EngineName = "simulated", **cluster: Any
) -> Plan:
    document = {
        "name": "planned",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "adam", "rate": 1e-3},
            "batch": 64,
        },
        "cluster": {"workers": 1 if strategy["kind"] == "none" else workers, **cluster},
        "strategies": {"it": strategy},
        "baseline": False,
        "seed": seed,
    }
    (trial,) = Scenario.decode(document).trials()
    return make_plan(trial, "run", engine, DummyAddresses())


@every_strategy
@settings(deadline=None, max_examples=10)
@given(workers=st.integers(1, 16), seed=st.integers(0, 99))
def test_the_same_scenario_gives_the_same_plan(strategy: dict[str, Any], workers: int, seed: int) -> None:
    """The plans are equal to the last byte: nodes compare the digest before they train together."""
    first, second, other = (plan(strategy, workers, plan_seed) for plan_seed in (seed, seed, seed + 1))

    assert first.model_dump_json() == second.model_dump_json()
    assert first.sha256 == second.sha256 != other.sha256


@every_strategy
def test_a_plan_is_unchanged_after_a_json_round_trip(strategy: dict[str, Any]) -> None:
    """Nodes read the plan from JSON, indented or not, and must get the same plan and the same digest."""
    planned = plan(strategy, worker={"throughput": "333/s", "uplink": "10mbit"})

    restored = decode_plan(planned.model_dump_json(indent=1))

    assert restored == planned
    assert restored.sha256 == planned.sha256
    assert json.loads(restored.model_dump_json()) == json.loads(planned.model_dump_json())


RING, AUTO = {"kind": "all_reduce"}, {"kind": "all_reduce", "collective": {"kind": "auto"}}
COLOCATED = {"kind": "parameter_server", "placement": {"kind": "colocated"}, "synchrony": {"kind": "asp"}}
GBA = {"kind": "parameter_server", "synchrony": {"kind": "gba"}}
PACED_AND_LINKED = {"worker": {"throughput": "333/s", "uplink": "10mbit", "downlink": "10mbit"}}


@pytest.mark.parametrize(
    ("before", "after"), [(RING, AUTO), (RING, GBA), (STRATEGIES[-1], AUTO), (STRATEGIES[-1], GBA), (COLOCATED, AUTO)]
)
def test_the_phases_of_a_switch_are_planned_like_the_strategies_alone(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Bytes, rounds and times of a strategy do not depend on the strategy before it."""
    switch_strategy = {
        "kind": "strategy_switch",
        "before": before,
        "after": after,
        "when": {"kind": "at", "fraction": 0.25},
    }

    switch, first, second = (
        plan(strategy, server={"uplink": "10mbit"}, **PACED_AND_LINKED) for strategy in (switch_strategy, before, after)
    )

    assert switch.second_phase is not None
    for phase, alone in ((switch, first), (switch.second_phase, second)):
        assert (phase.schedule, phase.predicted.formula) == (alone.schedule, alone.predicted.formula)
        assert phase.predicted.step_s == pytest.approx(alone.predicted.step_s)
        assert phase.reply_bytes_per_step == alone.reply_bytes_per_step
        assert {node: count for node, count in phase.bytes_per_step.items() if count} == alone.bytes_per_step
    assert switch.shard_owners == (first.shard_owners or second.shard_owners)
    assert switch.exchange_s_by_choice == second.exchange_s_by_choice
    assert switch.predicted_s == pytest.approx(first.predicted_s / 4 + 3 * second.predicted_s / 4, rel=1e-3)


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_shards_are_balanced_to_one_entry_and_cover_the_vector(servers: int) -> None:
    """The largest shard determines the time of all."""
    planned = plan({"kind": "parameter_server", "servers": servers})

    sizes = [shard.size for shard in planned.shards]
    assert (sum(sizes), len(sizes)) == (planned.parameters, servers)
    assert max(sizes) - min(sizes) <= 1
    assert [shard.start for shard in planned.shards[1:]] == [shard.stop for shard in planned.shards[:-1]]


@every_strategy
def test_every_node_has_its_own_address(strategy: dict[str, Any]) -> None:
    """A node also has a unique name, which its certificate contains."""
    nodes = plan(strategy).nodes

    assert len({str(node.addresses.data) for node in nodes}) == len({node.name for node in nodes}) == len(nodes)
    assert nodes[0].role == "coordinator"


SERVERS = tuple(f"server-{rank}" for rank in range(16))


def cost(strategy: SinglePhaseStrategy, workers: int, alpha_s: float = 0.0, compute_s: float = 0.0) -> CostModel:
    """Return the cost model of 100 MB vectors over links of 10 Gbit/s."""
    names = tuple(f"worker-{rank}" for rank in range(workers))
    links = dict.fromkeys((*names, *SERVERS), 8 / 10e9)
    return CostModel(
        workers=names,
        servers=SERVERS[: strategy.training_phases().server_count],
        entries=25_000_000,
        dtype="float32",
        alpha_s=alpha_s,
        uplink_s_per_byte=links,
        downlink_s_per_byte=links,
        compute_s=compute_s,
    )


@pytest.mark.parametrize(
    ("strategy", "workers", "milliseconds"),
    [
        # computed by hand: the vector takes 80 ms, a message 50 µs more
        (AllReduce(), 4, 120.3),
        (AllReduce(), 8, 140.7),
        (AllReduce(), 16, 151.5),
        (ParameterServer(servers=1), 4, 640.1),
        (ParameterServer(servers=1), 8, 1280.1),
        (ParameterServer(servers=2), 4, 320.1),
        (ParameterServer(servers=4), 8, 320.1),
        (ParameterServer(servers=16), 16, 160.1),
        (ParameterServer(servers=16), 4, 160.1),  # more servers than workers: the workers' own links remain
        (ParameterServer(synchrony=Asp()), 1, 160.1),
        (ParameterServer(synchrony=Asp()), 8, 640.0),  # saturated: the server receives one gradient in 80 ms
        (SingleWorker(), 1, 0.0),
    ],
)
def test_the_closed_forms_give_the_seconds_computed_by_hand(
    strategy: SinglePhaseStrategy, workers: int, milliseconds: float
) -> None:
    """A common textbook example: 100 MB gradients between machines on 10 Gbit/s."""
    assert strategy.predict_step_time(cost(strategy, workers, alpha_s=50e-6)).step_s * 1e3 == pytest.approx(
        milliseconds, abs=0.06
    )


@pytest.mark.parametrize(
    "strategy",
    [AllReduce(), ParameterServer(servers=2), SingleWorker()],
    ids=lambda member: member.kind,
)
def test_the_step_time_is_the_sum_of_compute_and_exchange(strategy: SinglePhaseStrategy) -> None:
    """Compute and exchange do not overlap: a worker sends its gradient when all of it is computed."""
    idle, busy = (
        strategy.predict_step_time(cost(strategy, 1 if strategy == SingleWorker() else 4, compute_s=seconds))
        for seconds in (0.0, 0.5)
    )

    assert busy.step_s == pytest.approx(idle.step_s + 0.5)
    assert busy.compute_s == 0.5


def test_a_prediction_takes_the_slowest_link_and_the_slowest_worker() -> None:
    """With synchronous training, all workers wait for them."""
    planned = plan(
        {"kind": "all_reduce"},
        worker={"throughput": "1000/s", "uplink": "100mbit", "downlink": "100mbit"},
        groups=[
            {"name": "slow", "ranks": [2], "throughput": "100/s"},
            {"name": "far", "ranks": [3], "uplink": "1mbit"},
        ],
    )

    assert planned.predicted.compute_s == 16 / 100
    expected = Ring().all_reduce_time_s(4, planned.vector_bytes, 0.0, 8 / 1e6 * 1514 / 1448)
    assert planned.predicted.exchange_s == pytest.approx(expected)


def test_a_prediction_takes_the_largest_share_of_a_batch() -> None:
    """64 samples among 5 workers are 13 for the slowest, not 12.8."""
    assert plan({"kind": "all_reduce"}, 5, worker={"throughput": "100/s"}).predicted.compute_s == 0.13


def test_all_spend_a_budget_at_the_slowest_pace_if_synchronous_else_at_their_own() -> None:
    """Four workers compute 16 samples each: in 16 ms, the slow one in 160 ms. Without it a quarter is lost."""
    groups = [{"name": "slow", "ranks": [3], "throughput": "100/s"}]

    def planned(kind: str, **keys: Any) -> Plan:
        strategy = {"kind": "parameter_server", "synchrony": {"kind": kind, **keys}}
        return plan(strategy, worker={"throughput": "1000/s"}, groups=groups)

    for bounded in (planned("bsp"), planned("ssp", staleness=3), planned("dssp", low=1, high=4)):
        # the last batch of an epoch has 29 samples instead of 64: 7 for the slow worker
        assert bounded.predicted_s == pytest.approx(bounded.epochs * (22 * 0.160 + 0.070), rel=1e-3)
    asynchronous = planned("asp")
    assert asynchronous.predicted.steps_s == pytest.approx((0.016, 0.016, 0.016, 0.160))
    samples = asynchronous.epochs * asynchronous.train_samples
    assert asynchronous.predicted_s == pytest.approx(samples / 3100, rel=0.01)
    with_backup = planned("backup", backups=1)
    # a quarter of the gradients is dropped
    assert with_backup.predicted_s == pytest.approx(with_backup.epochs * (22 * 0.016 + 0.007) / (3 / 4), rel=0.01)


def test_all_reduce_begins_when_the_slowest_worker_has_computed() -> None:
    """Synchronous servers do the same: E[X_(n:n)], the mean of the largest compute time."""
    worker = {"throughput": "1000/s", "variation": {"kind": "lognormal", "sigma": 0.3}}

    ring, star = (plan({"kind": kind}, worker=worker).predicted for kind in ("all_reduce", "parameter_server"))

    assert ring.compute_s == star.compute_s > 1.2 * 0.016


def test_an_update_from_one_gradient_uses_a_share_of_the_rate_unless_declared() -> None:
    """n updates with rate/n weigh as much as one synchronous update, with momentum and Adam too."""
    whole = plan({"kind": "parameter_server", "synchrony": Bsp().model_dump()}).optimiser.rate
    share = plan({"kind": "parameter_server", "synchrony": Asp().model_dump()}).optimiser.rate
    as_given = plan({"kind": "parameter_server", "synchrony": Asp().model_dump(), "rate": "as_given"}).optimiser.rate

    assert (whole, share, as_given) == (1e-3, 0.25e-3, 1e-3)


def test_steps_and_epochs_count_the_small_last_batch() -> None:
    """1438 training digits make 22 batches of 64 and one of 30."""
    planned = plan({"kind": "all_reduce"})

    assert planned.steps_per_epoch == -(-planned.train_samples // 64) == 23
    assert planned.steps == 10 * 23


SIZE = 650 * 4  # bytes of the linear model's gradient
BETA = 8 / (1e9 * 1448 / 1514)  # seconds per byte of a link of 1 Gbit/s
PORT = {"uplink": "1gbit", "downlink": "1gbit"}
STRIDED = {"kind": "all_reduce", "collective": {"kind": "ring", "stride": 4}}


def exchange_s_on_racks(
    strategy: dict[str, Any], uplink: str, server: dict[str, str] | None = None, **more: str
) -> float:
    """Return the predicted seconds of an exchange between eight workers in two racks of four."""
    network = {"kind": "racks", "size": 4, "uplink": uplink, **more}
    return plan(strategy, 8, worker=PORT, server=server or PORT, network=network).predicted.exchange_s


@pytest.mark.parametrize("uplink", ["4gbit", "2gbit", "1gbit"], ids=["1:1", "2:1", "4:1"])
def test_oversubscription_does_not_slow_a_ring_in_the_order_of_ranks(uplink: str) -> None:
    """One hop of a ring leaves each rack: 2(n-1) rounds of S/n at the rate of one link."""
    assert exchange_s_on_racks({"kind": "all_reduce"}, uplink) == pytest.approx(2 * 7 * SIZE / 8 * BETA)


@pytest.mark.parametrize(("uplink", "slowdown"), [("4gbit", 1), ("2gbit", 2), ("1gbit", 4)], ids=["1:1", "2:1", "4:1"])
def test_a_ring_across_racks_slows_down_with_the_oversubscription(uplink: str, slowdown: int) -> None:
    """With a stride of four, every hop leaves its rack: four links share one uplink."""
    assert exchange_s_on_racks(STRIDED, uplink) == pytest.approx(slowdown * 2 * 7 * SIZE / 8 * BETA)


def test_incast_is_bound_by_the_downlink_of_the_server() -> None:
    """Eight gradients pass the downlink, then eight answers the uplink; rack links carry four at twice the rate.

    Answers are one message: workers receive them one after another, so only the last gradient waits for its answer.
    """
    assert exchange_s_on_racks({"kind": "parameter_server"}, "2gbit") == pytest.approx((8 + 1) * SIZE * BETA)


@pytest.mark.parametrize(("uplink", "slowdown"), [("2gbit", 2), ("1gbit", 4)], ids=["2:1", "4:1"])
def test_incast_from_another_rack_is_bound_by_the_rack_uplink_if_the_server_is_fast(uplink: str, slowdown: int) -> None:
    """Four gradients come from the other rack; the server's own link needs for eight the time of 0.8."""
    fast = {"uplink": "10gbit", "downlink": "10gbit"}

    assert exchange_s_on_racks({"kind": "parameter_server"}, uplink, fast) == pytest.approx(2 * slowdown * SIZE * BETA)


def test_the_delay_of_a_ring_is_that_of_the_longest_path_of_a_chunk() -> None:
    """1 ms at each end on 14 hops, and 5 ms between racks on four of them; a server's exchange has the delay twice."""
    worker, network = {**PORT, "delay": "1ms"}, {"kind": "racks", "size": 4, "uplink": "4gbit", "delay": "5ms"}

    ring, star = (
        plan(strategy, 8, worker=worker, server=worker, network=network).predicted.exchange_s
        for strategy in ({"kind": "all_reduce"}, {"kind": "parameter_server"})
    )

    assert ring == pytest.approx(14 * (0.002 + SIZE / 8 * BETA) + 4 * 0.005)
    assert star == pytest.approx(2 * (0.007 + 8 * SIZE * BETA))


def test_the_rate_of_a_pair_of_nodes_applies_in_addition_to_those_of_the_nodes() -> None:
    """One slow pair slows the whole ring; a slower node would too."""
    links = [{"nodes": ["worker-1", "worker-2"], "rate": "100mbit"}]

    planned = plan({"kind": "all_reduce"}, 4, worker=PORT, links=links)

    assert planned.predicted.exchange_s == pytest.approx(2 * 3 * SIZE / 4 * 10 * BETA)


def test_a_rack_that_contains_all_nodes_limits_no_traffic() -> None:
    """No traffic leaves the rack."""
    one_rack = {"kind": "racks", "size": 8, "uplink": "1mbit"}

    assert plan({"kind": "all_reduce"}, 8, network=one_rack).network.shared_links == ()


def test_a_small_trial_of_a_sweep_omits_declarations_for_nodes_that_it_lacks() -> None:
    """The file lists ranks of groups and regions, ends of links and nodes of events for the largest trial."""
    cluster = {
        "worker": {"throughput": "100/s", **PORT},
        "groups": [{"name": "slow", "ranks": [0, 3], "speed": 0.5}],
        "links": [{"nodes": ["worker-0", "worker-3"], "link": "metro"}],
        "network": {
            "kind": "regions",
            "regions": {"eu": {"workers": [0, 1]}, "us": {"workers": [2, 3]}},
            "between": [{"regions": ["eu", "us"], "link": "wan-eu-us"}],
        },
    }
    document = {
        "name": "swept",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "adam", "rate": 1e-3},
            "batch": 64,
        },
        "cluster": cluster,
        "strategies": {"ring": {"kind": "all_reduce"}},
        "events": [{"kind": "slowdown", "at": {"step": 3}, "of": ["worker-3", "worker-1"], "factor": 2.0}],
        "sweep": {"workers": [2, 4]},
    }

    alone, two, four = (
        make_plan(trial, "run", "simulated", DummyAddresses()) for trial in Scenario.decode(document).trials()
    )

    assert (alone.events, alone.network.paths) == ((), ())
    assert [event.change.node_names for event in two.events] == [("worker-1",)]
    assert two.network.paths == ()
    assert [event.change.node_names for event in four.events] == [("worker-3", "worker-1")]
    assert four.network.path_between("worker-0", "worker-3").delay_s == pytest.approx(0.0455)
    assert [node.throughput for node in four.node_plans_of_role("worker")] == [50, 100, 100, 50]


def test_workers_that_may_use_a_gpu_share_its_memory_unless_they_declare_a_limit() -> None:
    """A worker on the CPU takes no share. In virtual time, one process computes for all workers."""
    cluster = {
        "worker": {"gpu_memory": "2GiB"},
        "groups": [
            {"name": "on the CPU", "ranks": [0], "device": "cpu"},
            {"name": "small", "ranks": [1], "gpu_memory": "1GiB"},
        ],
    }

    local, simulated = (
        [node.gpu_memory for node in planned.node_plans_of_role("worker")]
        for planned in (plan(RING, engine="local", **cluster), plan(RING, engine="simulated", **cluster))
    )

    assert [share.workers for share in local] == [3] * 4
    assert [share.declared_bytes for share in local] == [None, 1 << 30, 2 << 30, 2 << 30]
    assert simulated == [GpuMemoryShare()] * 4
