"""Laws of the parameter-server family: ends of ranges, what late gradients cost, and that logs explain results."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import pytest
from replay import Arrivals, replay

from services.cluster.links.fluid_link import goodput_bytes_per_s
from services.parameter_server.update_rules import WorkerContribution
from services.schema.errors import UserError

Row = dict[str, Any]
Rehearse = Callable[..., Any]

SLOW = {"groups": [{"name": "slow", "ranks": [0], "throughput": "250/s"}]}
JITTER = {"worker": {"throughput": "1000/s", "variation": {"kind": "lognormal", "sigma": 0.3}}}
LINKS = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "2mbit"}, **SLOW}
LINEAR = {"model": {"kind": "linear"}, "batch": 40}


def server(synchrony: str, servers: int = 1, **keys: Any) -> Row:
    """A strategy; `synchrony` is a kind, with its arguments after it."""
    kind, *arguments = synchrony.split()
    given = dict(argument.split("=") for argument in arguments)
    whole = {"kind": kind, **{key: int(value) for key, value in given.items()}}
    return {"kind": "parameter_server", "servers": servers, "synchrony": whole, **keys}


def versions(rows: list[Row]) -> list[float]:
    """When each update was made."""
    return list({row["version"]: row["time_s"] for row in rows}.values())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (server("ssp staleness=0", 2), server("bsp", 2)),
        (server("ssp staleness=1000000", 2), server("asp", 2)),
        (server("backup backups=0", 2), server("bsp", 2)),
        (server("gba gather=1", 2), server("asp", 2)),
        (server("asp", compensation={"kind": "dc_asgd", "strength": 0}), server("asp")),
        (server("asp", compensation={"kind": "dc_asgd_adaptive", "strength": 0}), server("asp")),
        (server("asp", staleness={"kind": "cut_off", "oldest": 1000}), server("asp")),
    ],
    ids=str,
)
@pytest.mark.parametrize("cluster", [LINKS, JITTER], ids=["slow links", "jitter"])
def test_the_end_of_a_range_trains_as_the_simpler_rule_to_the_last_bit(
    rehearse: Rehearse, one: Row, other: Row, cluster: Row
) -> None:
    """The same updates at the same moments, and the same parameters."""
    done, expected = rehearse(one, 4, cluster=cluster), rehearse(other, 4, cluster=cluster)

    assert done.params.tobytes() == expected.params.tobytes()
    for holder in done.plan.shard_owners:
        assert done.rows(holder, "shard_updates") == expected.rows(holder, "shard_updates")


REPLAYED = {
    "asp": server("asp", 2),
    "ssp": server("ssp staleness=1", 2),
    "dssp": server("dssp low=0 high=2", 2),
    "backup": server("backup backups=2", 2),
    "gba": server("gba gather=3 oldest=1", 2),
    "inverse": server("asp", 2, staleness={"kind": "inverse"}, rate="as_given"),
    "exponential": server("gba", 2, staleness={"kind": "exponential", "decay": 0.3}),
    "cut off": server("asp", 2, staleness={"kind": "cut_off", "oldest": 3}),
    "dc_asgd": server("asp", 2, compensation={"kind": "dc_asgd"}),
    "dc_asgd_adaptive": server("gba", 2, compensation={"kind": "dc_asgd_adaptive"}),
    "half precision": server("asp", 3, compress={"kind": "fp16"}),
    "colocated": server("asp", placement={"kind": "colocated"}),
    "spare": server("ssp staleness=2", 2, placement={"kind": "spare"}),
    "bsp": server("bsp", 2),
    "easgd": {"kind": "easgd", "servers": 2, "period": 3},
    "easgd asp": {"kind": "easgd", "servers": 2, "period": 3, "synchrony": {"kind": "asp"}},
    "easgd beside workers": {"kind": "easgd", "placement": {"kind": "colocated"}, "synchrony": {"kind": "asp"}},
}


@pytest.mark.parametrize("strategy", REPLAYED.values(), ids=REPLAYED)
@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
def test_the_order_of_arrival_replays_to_the_same_parameters(rehearse: Rehearse, strategy: Row, optimiser: str) -> None:
    """Whatever waits, weighs, drops or corrects: the logs hold all that the result depends on, to the last bit."""
    rate = {"momentum": 0.05, "adam": 0.01}[optimiser]
    done = rehearse(strategy, 4, cluster=LINKS, optimiser={"kind": optimiser, "rate": rate}, batch=13)

    params = replay(done.plan, done.arrivals, done.course)

    assert params.tobytes() == done.params.tobytes()
    assert hashlib.sha256(params.tobytes()).hexdigest() == done.value("coordinator", "params_sha256")


def test_another_order_of_arrival_gives_other_parameters_so_the_law_above_can_fail(rehearse: Rehearse) -> None:
    """Two updates that change places."""
    done = rehearse(server("asp"), 3, cluster=LINKS, optimiser={"kind": "adam", "rate": 0.01})
    ((updates, drops),) = done.arrivals
    last, before = updates[-1], updates[-2]
    swapped = [
        *updates[:-2],
        last | {"version": before["version"], "staleness": last["staleness"] - 1},
        before | {"version": last["version"], "staleness": before["staleness"] + 1},
    ]

    assert replay(done.plan, [Arrivals(swapped, drops)], done.course).tobytes() != done.params.tobytes()


@pytest.mark.parametrize("strategy", [{"kind": "none"}, {"kind": "local_sgd", "period": 7}], ids=str)
def test_what_can_not_be_replayed_says_so_and_what_can(rehearse: Rehearse, strategy: Row) -> None:
    """Nobody comes to anybody where one worker trains alone, and parameters that are averaged are not followed."""
    done = rehearse(strategy, 1)

    can = "all_reduce, parameter_server, easgd and switches"
    with pytest.raises(UserError, match=f"{strategy['kind']} can't be replayed; {can}"):
        replay(done.plan, done.arrivals, done.course)


@pytest.mark.parametrize(
    "keys",
    [{"staleness": {"kind": "exponential", "decay": 0.1}}, {"compensation": {"kind": "dc_asgd"}}],
    ids=["weighted", "compensated"],
)
@pytest.mark.parametrize("speeds", [(1000,) * 4, (1000, 250, 700, 910), (500, 2000, 800, 933)], ids=str)
def test_mean_staleness_is_n_minus_one_at_any_mix_of_speeds(
    rehearse: Rehearse, keys: Row, speeds: tuple[int, ...]
) -> None:
    """What gradients are worth changes nothing about when they come."""
    groups = [{"name": f"g{rank}", "ranks": [rank], "throughput": f"{speed}/s"} for rank, speed in enumerate(speeds)]
    done = rehearse(server("asp", **keys), 4, cluster={"groups": groups}, epochs=150, **LINEAR)

    updates = done.rows("server-0", "shard_updates")
    ages = [row["staleness"] for row in updates[: len(updates) * 3 // 4]]

    assert len(ages) >= 400
    assert np.mean(ages) == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize(
    ("synchrony", "most"), [("ssp staleness=1", 1), ("ssp staleness=3", 3), ("dssp low=1 high=4", 4)]
)
def test_nobody_starts_further_ahead_of_the_slowest_than_allowed(rehearse: Rehearse, synchrony: str, most: int) -> None:
    """By what workers say of their beginnings and the server of its updates, two logs apart."""
    done = rehearse(server(synchrony), 4, cluster=JITTER | SLOW, epochs=12)

    finished = [
        sorted(row["time_s"] for row in done.rows("server-0", "shard_updates") if row["worker"] == rank)
        for rank in range(4)
    ]
    end = min(times[-1] for times in finished)  # who has left is waited for by nobody
    gaps = [
        row["step"] - min(sum(at <= row["start_s"] + 1e-5 for at in times) for times in finished)
        for rank in range(4)
        for row in done.steps(rank)
        if row["start_s"] < end
    ]
    assert max(gaps) == most, "the bound holds, and is reached behind a slow worker"


def test_a_worker_that_stays_slow_sets_the_pace_under_any_bound(rehearse: Rehearse) -> None:
    """Bounded staleness absorbs what passes, not what lasts: 4 workers, one 4 times slower, as many updates as bsp."""
    paces = []
    for strategy in (server("bsp"), server("ssp staleness=3")):
        done = rehearse(strategy, 4, cluster=SLOW, epochs=20)
        rows = done.rows("server-0", "shard_updates")
        paces.append(len(rows) / rows[-1]["time_s"])

    assert paces[1] == pytest.approx(paces[0], rel=0.1)


@pytest.mark.parametrize("servers", [1, 2])
def test_what_a_bound_makes_workers_wait_is_no_exchange(rehearse: Rehearse, servers: int) -> None:
    """It is told by the server that waits: without a bound nobody does, and the rest of the exchange is as long."""
    away = SLOW | {"worker": {"throughput": "1000/s", "delay": "1ms"}}
    free, bound = (
        rehearse(server(synchrony, servers), 4, cluster=away, epochs=20) for synchrony in ("asp", "ssp staleness=2")
    )
    alone, held = ([row for rank in (1, 2, 3) for row in done.steps(rank)[5:-5]] for done in (free, bound))
    slow_s, fast_s = (np.median([row["step_s"] for row in done.steps(rank)]) for done, rank in ((bound, 0), (free, 1)))

    assert {row["wait_s"] for row in [*alone, *bound.steps(0)]} == {0.0}
    assert np.mean([row["wait_s"] for row in held]) == pytest.approx(slow_s - fast_s, rel=0.05)
    assert [row["exchange_s"] for row in [*alone, *held]] == pytest.approx([0.002] * len([*alone, *held]), rel=0.01)


@pytest.mark.parametrize("synchrony", ["asp", "backup backups=1"])
def test_pushing_to_the_last_server_is_no_wait_at_the_first(rehearse: Rehearse, synchrony: str) -> None:
    """Nobody is slow: all that a worker is kept back for is its own link, over which pushes leave in turn."""
    done = rehearse(server(synchrony, 4), 4, cluster={"worker": LINKS["worker"]}, epochs=10)

    rows = [row for rank in range(4) for row in done.steps(rank)[2:-2]]
    exchange_s, wait_s = (np.mean([row[f"{phase}_s"] for row in rows]) for phase in ("exchange", "wait"))
    assert wait_s < 0.1 * exchange_s


def test_ssp_absorbs_what_passes(rehearse: Rehearse) -> None:
    """Where every worker is slow now and then, nobody waits for all of them at every step."""
    seconds = [
        rehearse(strategy, 8, cluster=JITTER, epochs=20, batch=40).rows("server-0", "shard_updates")[-1]["time_s"]
        for strategy in (server("bsp"), server("ssp staleness=4"))
    ]

    assert seconds[1] < 0.85 * seconds[0]


@pytest.mark.parametrize(
    ("workers", "backups", "sigma"), [(12, 2, 0.1), (12, 2, 0.3), (12, 2, 0.5), (8, 1, 0.3), (8, 0, 0.1), (8, 0, 0.5)]
)
def test_a_step_with_backups_takes_the_order_statistic(
    rehearse: Rehearse, workers: int, backups: int, sigma: float
) -> None:
    """E[X_(n-b:n)] with late starts, within 3 %: without them 6 % for 2 of 12 and σ = 0.3, 11 % for σ = 0.5."""
    cluster = {"worker": {"throughput": "1000/s", "variation": {"kind": "lognormal", "sigma": sigma}}}
    digits = {"dataset": {"kind": "digits"}, "model": {"kind": "linear"}, "batch": 20 * workers, "epochs": 25}
    done = rehearse(server(f"backup backups={backups}"), workers, cluster=cluster, **digits)

    whole = [row for row in done.rows("server-0", "shard_updates") if row["samples"] == 20]
    steps_s = [after - before for before, after in pairwise(versions(whole)[:-workers])]

    assert len(steps_s) > 100
    assert np.mean(steps_s) == pytest.approx(done.plan.predicted.step_s, rel=0.03)


def test_with_backups_every_step_has_exactly_the_gradients_that_it_waits_for(rehearse: Rehearse) -> None:
    """All of them fresh; and a step never takes longer than one that waits for all on the same trace."""
    quick = rehearse(server("backup backups=2"), 6, cluster=JITTER, epochs=10)
    patient = rehearse(server("bsp"), 6, cluster=JITTER, epochs=10)

    rows = quick.rows("server-0", "shard_updates")
    sizes = [sum(row["version"] == version for row in rows) for version in range(1, 40)]
    assert set(sizes) == {4}
    assert {row["staleness"] for row in rows} == {0}
    assert {row["staleness"] > 0 for row in quick.rows("server-0", "shard_drops")} == {True}
    times = zip(versions(rows)[:39], versions(patient.rows("server-0", "shard_updates"))[:39], strict=True)
    assert all(with_backups <= without for with_backups, without in times)


SATURATED = {
    "worker": {"throughput": "1000/s", "uplink": "10mbit", "downlink": "10mbit"},
    "server": {"uplink": "10mbit", "downlink": "10mbit"},
}


@pytest.mark.parametrize(("throughput", "servers"), [("1000/s", 1), ("2000/s", 1), ("4000/s", 2)])
def test_updates_per_second_grow_with_workers_until_the_servers_links_are_full(
    rehearse: Rehearse, throughput: str, servers: int
) -> None:
    """At n*, within 5 %: below, every worker adds its own pace; above, nobody adds any."""
    cluster = SATURATED | {"worker": SATURATED["worker"] | {"throughput": throughput}}

    def rate(workers: int) -> tuple[float, float]:
        numbers = {"kind": "synthetic_regression", "samples": 250 * workers, "features": 64, "outputs": 10}
        work = {"dataset": numbers, "model": {"kind": "linear"}, "batch": 20 * workers, "epochs": 12}
        done = rehearse(server("asp", servers), workers, cluster=cluster, **work)
        times = versions(done.rows("server-0", "shard_updates"))
        begin, end = len(times) // 4, -len(times) // 4
        settled = times[begin:end]
        return (len(settled) - 1) / (settled[-1] - settled[0]), done.plan.saturation_workers

    alone, limit = rate(1)
    most, told = rate(round(2 * limit))
    below, _ = rate(round(0.7 * limit))

    assert told == pytest.approx(limit)
    assert most / alone == pytest.approx(limit, rel=0.05)
    assert below / alone == pytest.approx(round(0.7 * limit), rel=0.1)


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("keys", [{"placement": {"kind": "colocated"}}, {"placement": {"kind": "spare"}, "servers": 2}])
def test_where_shards_live_changes_no_bit_of_a_synchronous_result(rehearse: Rehearse, workers: int, keys: Row) -> None:
    """Nodes send other bytes to each other and get the same sums."""
    moved = rehearse({"kind": "parameter_server", **keys}, workers, hash_every_step=True, cluster=LINKS)
    dedicated = rehearse({"kind": "parameter_server"}, workers, hash_every_step=True, cluster=LINKS)

    assert moved.params.tobytes() == dedicated.params.tobytes()
    hashes = [[each["value"] for each in moved.events(f"worker-{rank}", "node_hash")] for rank in range(workers)]
    assert all(others == hashes[0] for others in hashes)


@pytest.mark.parametrize("workers", [4, 8, 12])
def test_workers_that_serve_answer_behind_their_own_pushes(rehearse: Rehearse, workers: int) -> None:
    """Out of lockstep, too, a step moves a ring's bytes; no answer comes while pushes are under way."""
    links = {"uplink": "100mbit", "downlink": "100mbit"}
    cluster = {"worker": {"throughput": "800/s", **links}}
    work = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [256]}, "epochs": 2}
    strategy = server("asp", placement={"kind": "colocated"})

    done = rehearse(strategy, workers, cluster=cluster, batch=16 * workers, **work)

    moved_s = 2 * (workers - 1) / workers * done.plan.vector_bytes / goodput_bytes_per_s(100e6)
    assert done.plan.predicted.step_s == pytest.approx(16 / 800 + moved_s, rel=1e-4)
    settled = [row["step_s"] for rank in range(workers) for row in done.steps(rank)[1:-1]]
    assert median(settled) == pytest.approx(done.plan.predicted.step_s, rel=0.07)


@pytest.mark.parametrize(("workers", "spare"), [(4, 1), (8, 2), (4, 4)])
def test_a_step_with_other_placements_takes_the_closed_forms_seconds(
    rehearse: Rehearse, workers: int, spare: int
) -> None:
    """Shards and workers take turns, so that no link waits for another: colocated is as fast as a ring."""
    links = {"uplink": "20mbit", "downlink": "20mbit"}
    cluster = {"worker": {"throughput": "1000/s", **links}, "server": links}
    work = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [2048]}, "batch": 240, "epochs": 1}
    strategies = (
        {"kind": "parameter_server", "placement": {"kind": "colocated"}},
        {"kind": "parameter_server", "placement": {"kind": "spare"}, "servers": spare},
        {"kind": "all_reduce"},
    )

    colocated, spared, ring = (rehearse(strategy, workers, cluster=cluster, **work) for strategy in strategies)

    for done in (colocated, spared):
        steps_s = [row["step_s"] for rank in range(workers) for row in done.steps(rank)[1:-1]]
        assert np.mean(steps_s) == pytest.approx(done.plan.predicted.step_s, rel=0.02)
    assert colocated.plan.predicted.step_s == pytest.approx(ring.plan.predicted.step_s, rel=0.01)


FULL = "speeds, and the server's link is full"
UNEQUAL = {
    "speeds": {"groups": [{"name": "slow", "ranks": [0], "speed": 0.25}, {"name": "fast", "ranks": [3], "speed": 2}]},
    FULL: {
        "groups": [{"name": "slow", "ranks": [0], "speed": 0.2}],
        "server": {"uplink": "10mbit", "downlink": "10mbit"},
    },
    "links": {"groups": [{"name": "far", "ranks": [0, 1], "uplink": "5mbit", "downlink": "5mbit", "delay": "20ms"}]},
    "regions": {
        "network": {
            "kind": "regions",
            "regions": {"near": {"workers": [0, 1], "servers": [0]}, "far": {"workers": [2, 3]}},
            "between": [{"regions": ["near", "far"], "rate": "50mbit", "delay": "60ms"}],
        }
    },
}


@pytest.mark.parametrize(("differ", "error"), [(key, 0.19 if key == FULL else 0.05) for key in UNEQUAL])
@pytest.mark.parametrize("strategy", [server("asp"), server("gba")], ids=["asp", "gba"])
def test_workers_that_differ_and_do_not_wait_each_take_their_own_predicted_step(
    rehearse: Rehearse, strategy: Row, differ: str, error: float
) -> None:
    """Like with like: the slowest worker's closed form says nothing about the others.

    Where a link is full, those who wait for it come in groups and leave gaps: 14 to 18 % longer than turns without any.
    """
    links = {"uplink": "50mbit", "downlink": "50mbit"}
    cluster = {"worker": {"throughput": "400/s", **links}, "server": links, **UNEQUAL[differ]}
    work = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [256]}, "batch": 128, "epochs": 6}

    done = rehearse(strategy, 4, cluster=cluster, **work)

    told = done.plan.predicted.steps_s
    measured = [float(np.median([row["step_s"] for row in done.steps(rank)])) for rank in range(4)]
    assert max(told) > 1.2 * min(told)
    assert measured == pytest.approx(told, rel=error)


PARTIAL = [server("gba"), server("backup backups=4"), server("gba gather=6", rate="as_given")]


@pytest.mark.parametrize("strategy", PARTIAL, ids=str)
def test_updates_of_fewer_gradients_than_planned_use_as_much_less_of_the_rate(
    rehearse: Rehearse, strategy: Row
) -> None:
    """At the end of a run workers leave: one gradient alone must not move as far as those of a whole update."""
    done = rehearse(strategy, 12, cluster=JITTER, optimiser={"kind": "sgd", "rate": 0.05}, batch=24)
    planned = done.plan.strategy.server_algorithm().gradients_per_update(12)
    made = Counter(row["version"] for row in done.rows(done.plan.shard_owners[0], "shard_updates"))
    assert max(made.values()) == planned > min(made.values())

    moved = []
    for parts in (1, planned):  # all in one update, each in one of its own
        rule = done.plan.strategy.server_algorithm().make_update_rule(done.plan.optimiser, np.zeros(3), 12)
        for _ in range(parts):
            rule.update([WorkerContribution(rank, 2, 0, np.ones(3)) for rank in range(planned // parts)])
        moved.append(rule.params)
    assert moved[1] == pytest.approx(moved[0])


def test_sixty_four_workers_are_simulated_in_seconds(rehearse: Rehearse) -> None:
    """Or nobody would try what a cluster of that size does."""
    began = time.monotonic()

    done = rehearse(server("ssp staleness=4"), 64, cluster=JITTER, dataset={"kind": "digits"}, batch=256, epochs=4)

    assert time.monotonic() - began < 30
    assert done.value("coordinator", "params_sha256")


def test_an_elastic_worker_without_a_spring_trains_alone(rehearse: Rehearse) -> None:
    """α = 0: however often it meets the centre; and the centre stays where it was."""
    often, seldom = (rehearse({"kind": "easgd", "moving_rate": 0, "period": period}, 3) for period in (1, 5))

    for rank in range(3):
        losses = [[row["loss"] for row in done.steps(rank)] for done in (often, seldom)]
        common = min(map(len, losses))  # who exchanges seldom learns late that the budget is spent
        assert common > 15
        assert losses[0][:common] == losses[1][:common]
    first = often.plan.model.init_parameters(often.plan.dataset.load("float32").task, often.plan.seed, "float32")
    assert often.params.tobytes() == seldom.params.tobytes() == first.tobytes()


@pytest.mark.parametrize("synchrony", ["bsp", "asp"])
@pytest.mark.parametrize("period", [1, 4])
def test_the_centre_of_elastic_workers_learns_what_they_learn(rehearse: Rehearse, synchrony: str, period: int) -> None:
    """The centre is what is evaluated; all samples are counted, those of the last steps too."""
    strategy = {"kind": "easgd", "period": period, "servers": 2, "synchrony": {"kind": synchrony}}
    done = rehearse(strategy, 3, cluster=LINKS, epochs=10)

    (stop,) = done.events("coordinator", "run_stop")
    assert done.events("coordinator", "eval_metrics")[-1]["value"]["r2"] > 0.9
    samples = sum(row["samples"] for rank in range(3) for row in done.steps(rank))
    assert stop["metadata"]["samples_count"] == samples >= 10 * done.plan.train_samples


@pytest.mark.parametrize("workers", [1, 3])
def test_the_last_evaluation_out_of_lockstep_counts_the_steps_that_its_samples_make(
    rehearse: Rehearse, workers: int
) -> None:
    """Servers count updates, of which several workers make more than the budget has steps."""
    done = rehearse({"kind": "parameter_server", "synchrony": {"kind": "asp"}}, workers, cluster=LINKS, epochs=4)

    told = [event["metadata"] for event in done.events("coordinator", "eval_metrics")]
    steps = [each["step"] for each in told]
    assert steps == sorted(steps)
    assert steps[-1] == pytest.approx(
        told[-1]["samples_count"] * done.plan.steps_per_epoch / done.plan.train_samples, abs=1
    )
    assert done.plan.steps <= steps[-1] <= done.plan.steps + workers
    assert (done.events("coordinator", "run_stop")[-1]["metadata"]["step"] > done.plan.steps + workers) == (workers > 1)


@pytest.mark.parametrize("cluster", [{}, JITTER, SLOW], ids=["equal", "jitter", "slow"])
@pytest.mark.parametrize("synchrony", ["bsp", "asp"])
@pytest.mark.parametrize("period", [16, 64])
def test_elastic_workers_stop_when_all_together_have_used_the_budget(
    rehearse: Rehearse, cluster: Row, synchrony: str, period: int
) -> None:
    """Also before anybody has heard of the others: each would otherwise train for the whole budget by itself."""
    strategy = {"kind": "easgd", "period": period, "synchrony": {"kind": synchrony}}
    done = rehearse(strategy, 8, cluster=cluster, epochs=10)

    (stop,) = done.events("coordinator", "run_stop")
    beyond = stop["metadata"]["samples_count"] - 10 * done.plan.train_samples
    assert abs(beyond) < done.plan.batch  # an exchange on its way counts as the worker's last one, or its share


@pytest.mark.parametrize("synchrony", ["bsp", "asp"])
def test_elastic_workers_are_waited_for_as_long_as_their_period_takes(rehearse: Rehearse, synchrony: str) -> None:
    """A push comes after twelve steps of 3 s, where nobody waits for more than 10 s for a step's."""
    strategy = {"kind": "easgd", "period": 12, "synchrony": {"kind": synchrony}}
    done = rehearse(strategy, 4, cluster={"worker": {"throughput": "1/s"}}, epochs=10, timeouts={"step": "10s"})

    (stop,) = done.events("coordinator", "run_stop")
    assert stop["metadata"]["reason"] == "budget used"


def test_an_elastic_worker_leaves_after_a_step_without_samples(rehearse: Rehearse) -> None:
    """The last batch of an epoch has none for it, and the run stops there: servers know pushes by their numbers."""
    strategy = {"kind": "easgd", "period": 3, "synchrony": {"kind": "asp"}}
    pause = {"kind": "pause", "of": ["worker-3"], "at": {"step": 3}, "lasts": "1s"}
    target = {"metric": "mae", "at_most": 100.0}

    done = rehearse(strategy, 4, batch=26, target=target, events=[pause])

    (stop,) = done.events("coordinator", "run_stop")
    assert stop["metadata"]["reason"] == "target reached"
    assert [row["samples"] for row in done.steps(3)] == [6, 6, 6, 0]
