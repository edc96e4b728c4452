"""A plan follows from its scenario alone, says what a run will send and take, and survives its own file."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.collectives import Ring
from services.plan import Nowhere, Plan, make_plan
from services.scenario import Scenario
from services.strategies import AllReduce, Alone, ParameterServer, Strategy
from services.strategies.base import Cost
from services.synchronisers import Asp, Bsp

STRATEGIES: list[dict[str, Any]] = [
    {"kind": "none"},
    {"kind": "all_reduce"},
    {"kind": "parameter_server", "servers": 3},
    {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
]
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda given: "-".join(map(str, given.values())))


def plan(strategy: dict[str, Any], workers: int = 4, seed: int = 1, **cluster: Any) -> Plan:
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
    return make_plan(trial, "run", "simulated", Nowhere())


@every_strategy
@settings(deadline=None, max_examples=10)
@given(workers=st.integers(1, 16), seed=st.integers(0, 99))
def test_the_same_scenario_gives_the_same_plan(strategy: dict[str, Any], workers: int, seed: int) -> None:
    """To the last byte: nodes compare its digest before they train together."""
    once, again, other = (plan(strategy, workers, each) for each in (seed, seed, seed + 1))

    assert once.model_dump_json() == again.model_dump_json()
    assert once.sha256 == again.sha256 != other.sha256


@every_strategy
def test_a_plan_survives_its_own_file(strategy: dict[str, Any]) -> None:
    """Nodes read it from JSON, indented or not; what they read must be what was decided, digest and all."""
    decided = plan(strategy, worker={"throughput": "333/s", "uplink": "10mbit"})

    read = Plan.model_validate_json(decided.model_dump_json(indent=1))

    assert read == decided
    assert read.sha256 == decided.sha256
    assert json.loads(read.model_dump_json()) == json.loads(decided.model_dump_json())


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_shards_are_balanced_to_one_entry_and_cover_the_vector(servers: int) -> None:
    """The largest shard sets the time of all."""
    decided = plan({"kind": "parameter_server", "servers": servers})

    sizes = [shard.size for shard in decided.shards]
    assert (sum(sizes), len(sizes)) == (decided.parameters, servers)
    assert max(sizes) - min(sizes) <= 1
    assert [shard.start for shard in decided.shards[1:]] == [shard.stop for shard in decided.shards[:-1]]


@every_strategy
def test_every_node_has_an_address_of_its_own(strategy: dict[str, Any]) -> None:
    """And a name, which its certificate bears."""
    nodes = plan(strategy).nodes

    assert len({str(node.place.data) for node in nodes}) == len({node.name for node in nodes}) == len(nodes)
    assert nodes[0].role == "coordinator"


SERVERS = tuple(f"server-{rank}" for rank in range(16))


def cost(strategy: Strategy, workers: int, alpha_s: float = 0.0, compute_s: float = 0.0) -> Cost:
    """100 MB over 10 Gbit/s."""
    names = tuple(f"worker-{rank}" for rank in range(workers))
    links = dict.fromkeys((*names, *SERVERS), 8 / 10e9)
    return Cost(
        workers=names,
        servers=SERVERS[: strategy.server_count],
        entries=25_000_000,
        dtype="float32",
        alpha_s=alpha_s,
        uplinks_s=links,
        downlinks_s=links,
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
        (ParameterServer(synchrony=Asp()), 8, 640.0),  # saturated: the server passes on one gradient in 80 ms
        (Alone(), 1, 0.0),
    ],
)
def test_the_closed_forms_give_the_seconds_computed_by_hand(
    strategy: Strategy, workers: int, milliseconds: float
) -> None:
    """The table that every textbook has: 100 MB gradients between machines on 10 Gbit/s."""
    assert strategy.predict(cost(strategy, workers, alpha_s=50e-6)).step_s * 1e3 == pytest.approx(
        milliseconds, abs=0.06
    )


@pytest.mark.parametrize("strategy", [AllReduce(), ParameterServer(servers=2), Alone()], ids=lambda given: given.kind)
def test_computing_comes_on_top_of_exchanging(strategy: Strategy) -> None:
    """Nothing overlaps: gradients are sent when all of them are there."""
    idle, busy = (
        strategy.predict(cost(strategy, 1 if strategy == Alone() else 4, compute_s=seconds)) for seconds in (0.0, 0.5)
    )

    assert busy.step_s == pytest.approx(idle.step_s + 0.5)
    assert busy.compute_s == 0.5


def test_a_prediction_takes_the_slowest_link_and_the_slowest_worker() -> None:
    """In lockstep everybody waits for them."""
    decided = plan(
        {"kind": "all_reduce"},
        worker={"throughput": "1000/s", "uplink": "100mbit", "downlink": "100mbit"},
        groups=[
            {"name": "slow", "ranks": [2], "throughput": "100/s"},
            {"name": "far", "ranks": [3], "uplink": "1mbit"},
        ],
    )

    assert decided.predicted.compute_s == 16 / 100
    expected = Ring().seconds(4, decided.vector_bytes, 0.0, 8 / 1e6 * 1514 / 1448)
    assert decided.predicted.exchange_s == pytest.approx(expected)


def test_a_prediction_takes_the_largest_share_of_a_batch() -> None:
    """64 samples among 5 workers are 13 for the slowest, not 12.8."""
    assert plan({"kind": "all_reduce"}, 5, worker={"throughput": "100/s"}).predicted.compute_s == 0.13


def test_an_update_from_one_gradient_uses_the_rates_share_unless_told_otherwise() -> None:
    """n updates of 1/n weigh as much as the one of lockstep; with momentum and Adam alike."""
    whole = plan({"kind": "parameter_server", "synchrony": Bsp().model_dump()}).optimiser.rate
    share = plan({"kind": "parameter_server", "synchrony": Asp().model_dump()}).optimiser.rate
    given = plan({"kind": "parameter_server", "synchrony": Asp().model_dump(), "rate": "as_given"}).optimiser.rate

    assert (whole, share, given) == (1e-3, 0.25e-3, 1e-3)


def test_steps_and_epochs_count_the_small_last_batch() -> None:
    """1438 training digits make 22 batches of 64 and one of 30."""
    decided = plan({"kind": "all_reduce"})

    assert decided.steps_per_epoch == -(-decided.train_samples // 64) == 23
    assert decided.steps == 10 * 23
