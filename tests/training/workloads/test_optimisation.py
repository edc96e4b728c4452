"""Schedules, clipping, batch scaling and layer-wise optimisers in whole trials train the same model on any nodes."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replay import ShardArrivals, replay

from services.learning.schedules import ConstantSchedule
from services.plan import Plan, TrainingPlan

Simulate = Callable[..., Any]
Document = dict[str, Any]

NONE = {"kind": "none"}
RING = {"kind": "all_reduce"}
ONE_SERVER = {"kind": "parameter_server"}
TWO_SERVERS = {"kind": "parameter_server", "servers": 2}
ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
EASGD = {"kind": "easgd", "servers": 2, "period": 3}
WHOLE_VECTOR = {  # each update of the parameters is made with the whole vector
    "ring": RING,
    "racks": RING | {"collective": {"kind": "hierarchical", "size": 2}},
    "one server": ONE_SERVER,
    "one spare server": {"kind": "parameter_server", "synchrony": {"kind": "ssp", "staleness": 0}},
}
SLOW = {"groups": [{"name": "slow", "ranks": [0], "throughput": "250/s"}]}
LINKS = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "2mbit"}, **SLOW}

SCHEDULES = {
    "cosine": {"kind": "cosine", "warmup": 0.2},
    "step": {"kind": "step", "milestone_steps": [9, 14], "warmup_steps": 3},
    "polynomial": {"kind": "polynomial", "power": 2, "warmup_start": 0.5, "warmup_steps": 4},
    "warm-up": {"kind": "linear_warmup", "warmup": 0.3},
}
SGD = {"kind": "sgd", "rate": 0.3}
OPTIMISERS = {
    "momentum": {"kind": "momentum", "rate": 0.1},
    "adamw": {"kind": "adamw", "rate": 0.02, "weight_decay": 0.1},
    "lamb": {"kind": "lamb", "rate": 0.05, "weight_decay": 0.01},
    "lars": {"kind": "lars", "rate": 1.0, "trust_coefficient": 0.02, "weight_decay": 0.01},
}
COSINE = SCHEDULES["cosine"]
CLIP = 0.4  # below the norms of some gradients, and above others

every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
every_optimiser = pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)


def digest(trial: Any) -> str:
    return str(trial.value("coordinator", "params_sha256"))


@pytest.mark.parametrize("strategy", WHOLE_VECTOR.values(), ids=WHOLE_VECTOR)
@every_optimiser
def test_n_workers_with_clipping_train_as_one_worker(
    simulate: Simulate, strategy: Document, optimiser: Document
) -> None:
    """Norms are those of the mean over the batch and of whole arrays, so the division among workers does not matter."""
    work = {"schedule": COSINE, "optimiser": optimiser, "clip_norm": CLIP, "batch": 13, "precision": "fp64"}

    serial, parallel = simulate(NONE, 1, **work), simulate(strategy, 4, **work)

    np.testing.assert_allclose(parallel.params, serial.params, rtol=1e-6, atol=1e-9)


@every_schedule
@pytest.mark.parametrize("strategy", [RING, TWO_SERVERS], ids=["ring", "two servers"])
def test_n_workers_with_a_schedule_train_as_one_worker(
    simulate: Simulate, strategy: Document, schedule: Document
) -> None:
    """The rate is that of the samples so far, of all workers together."""
    work = {"schedule": schedule, "batch": 13, "precision": "fp64"}

    serial, parallel = simulate(NONE, 1, **work), simulate(strategy, 4, **work)

    np.testing.assert_allclose(parallel.params, serial.params, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("keys", [{"clip_norm": CLIP}, *({"schedule": schedule} for schedule in SCHEDULES.values())])
def test_clipping_and_schedules_change_the_model(simulate: Simulate, keys: Document) -> None:
    """The tests above can fail: a key without effect would pass them."""
    assert not np.allclose(simulate(NONE, 1, **keys).params, simulate(NONE, 1).params, rtol=1e-3)


@every_schedule
@pytest.mark.parametrize(
    "strategy",
    [TWO_SERVERS, ASP | {"servers": 3}, {"kind": "local_sgd", "period": 7}, EASGD | {"period": 1, "moving_rate": 0}],
    ids=["bsp", "asp", "local_sgd", "easgd"],
)
def test_one_worker_with_a_schedule_equals_serial_training_bitwise(
    simulate: Simulate, strategy: Document, schedule: Document
) -> None:
    """Servers count the samples of their updates, workers those of their steps: both counts are equal here."""
    alone, exchanged = (simulate(kind, 1, schedule=schedule, optimiser=SGD) for kind in (NONE, strategy))

    params = exchanged.params if strategy["kind"] != "easgd" else None
    if params is not None:
        assert params.tobytes() == alone.params.tobytes()
    else:  # the centre never moves; the worker's own parameters are in its last push
        assert exchanged.steps(0)[-1]["loss"] == alone.steps(0)[-1]["loss"]


@every_schedule
def test_local_sgd_with_a_period_of_one_follows_the_schedule_of_synchronous_training(
    simulate: Simulate, schedule: Document
) -> None:
    """Each worker counts the samples of all workers, not only its own."""
    work = {"schedule": schedule, "optimiser": SGD, "precision": "fp64"}

    local, ring = simulate({"kind": "local_sgd", "period": 1}, 3, **work), simulate(RING, 3, **work)

    np.testing.assert_allclose(local.params, ring.params, rtol=1e-9, atol=1e-12)


@every_schedule
def test_workers_of_easgd_follow_the_schedule_for_any_period(simulate: Simulate, schedule: Document) -> None:
    """Here exchanges change only the count of samples: with bsp, it is always that of the global batches."""
    often, rarely = (
        simulate(EASGD | {"period": period, "moving_rate": 0}, 3, schedule=schedule, optimiser=SGD) for period in (1, 4)
    )

    for rank in range(3):
        losses = [[row["loss"] for row in trial.steps(rank)][:20] for trial in (often, rarely)]  # of 21 steps
        assert len(losses[0]) == 20
        assert losses[0] == losses[1]


@pytest.mark.parametrize("clip_norm", [0.01, 0.05])
@pytest.mark.parametrize("strategy", [NONE, RING, ONE_SERVER], ids=["serial", "ring", "one server"])
def test_a_step_with_a_clipped_gradient_has_the_length_rate_times_norm(
    simulate: Simulate, strategy: Document, clip_norm: float
) -> None:
    """All gradients of this run are longer than the limit. The order of an epoch does not change the full batch."""
    trial = simulate(
        strategy, 1 if strategy == NONE else 3, batch=80, epochs=5, clip_norm=clip_norm, optimiser=SGD, precision="fp64"
    )

    lengths = np.linalg.norm(np.diff(trial.epoch_params, axis=0), axis=1)
    assert lengths == pytest.approx([SGD["rate"] * clip_norm] * 4)


def test_a_gradient_below_the_limit_is_not_changed(simulate: Simulate) -> None:
    """The limit must not change a single bit of a run whose gradients are shorter."""
    unlimited, limited = simulate(RING, 3), simulate(RING, 3, clip_norm=1e6)

    assert digest(limited) == digest(unlimited)


@every_optimiser
@pytest.mark.parametrize("strategy", [RING, ONE_SERVER], ids=["ring", "one server"])
def test_replicas_are_bitwise_equal_after_every_step(
    simulate: Simulate, strategy: Document, optimiser: Document
) -> None:
    """Every replica computes its own norms; one bit of difference would let replicas drift apart."""
    trial = simulate(strategy, 3, optimiser=optimiser, clip_norm=CLIP, schedule=COSINE, batch=13, hash_every_step=True)

    hashes = [[event["value"] for event in trial.events(f"worker-{rank}", "node_hash")] for rank in range(3)]
    assert hashes[0] == hashes[1] == hashes[2]


@every_schedule
@pytest.mark.parametrize("rule", ["linear", "sqrt"])
def test_n_workers_with_batches_of_b_train_as_one_worker_with_a_batch_of_n_times_b(
    simulate: Simulate, schedule: Document, rule: str
) -> None:
    """Rates and schedules depend on the global batch only."""
    work = {"schedule": schedule, "batch_scaling": {"rule": rule, "base_batch": 4}, "precision": "fp64"}

    weak = simulate(RING, 4, batch_per_worker=3, batch=None, **work)
    serial = simulate(NONE, 1, batch=12, **work)

    assert weak.plan.optimiser == serial.plan.optimiser
    assert weak.plan.rate_schedule == serial.plan.rate_schedule
    np.testing.assert_allclose(weak.params, serial.params, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("rule", "factor"), [("linear", 3.0), ("sqrt", 3**0.5), ("none", 1.0)])
def test_rate_grows_with_the_global_batch_in_all_phases(simulate: Simulate, rule: str, factor: float) -> None:
    """The plan shows the factor, and the rates of both phases have it."""
    after = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    switch = {"kind": "strategy_switch", "before": RING, "after": after, "when": {"kind": "at", "fraction": 0.5}}
    scaling = {"rule": rule, "base_batch": 4}

    plan = simulate(switch, 4, batch_per_worker=3, batch=None, optimiser=SGD, batch_scaling=scaling).plan

    assert plan.batch_rate_factor == pytest.approx(factor)
    assert plan.optimiser.rate == pytest.approx(SGD["rate"] * factor)
    assert plan.second_phase.optimiser.rate == pytest.approx(SGD["rate"] * factor / 4)


REPLAYED: dict[str, Document] = {
    "ring": RING,
    "bsp": TWO_SERVERS,
    "asp": ASP | {"servers": 2},
    "ssp": TWO_SERVERS | {"synchrony": {"kind": "ssp", "staleness": 1}},
    "backup": TWO_SERVERS | {"synchrony": {"kind": "backup", "backups": 1}},
    "gba": TWO_SERVERS | {"synchrony": {"kind": "gba", "oldest": 1}},
    "weighted": ASP | {"staleness": {"kind": "inverse"}, "rate": "as_given"},
    "cut off": ASP | {"staleness": {"kind": "cut_off", "oldest": 2}},
    "compensated": ASP | {"compensation": {"kind": "dc_asgd_adaptive"}},
    "colocated": ASP | {"placement": {"kind": "colocated"}},
    "greedy": ONE_SERVER | {"synchrony": {"kind": "greedy"}},
    "easgd": EASGD,
    "easgd asp": EASGD | {"synchrony": {"kind": "asp"}},
    "sync_switch": {"kind": "sync_switch", "fraction": 0.4, "servers": 2},
    "asp to ring": {"kind": "strategy_switch", "before": ASP, "after": RING, "when": {"kind": "at", "fraction": 0.4}},
    "ring to asp": {"kind": "strategy_switch", "before": RING, "after": ASP, "when": {"kind": "at", "fraction": 0.4}},
    "promoted": {
        "kind": "strategy_switch",
        "after": ASP | {"placement": {"kind": "promoted"}},
        "when": {"kind": "at", "fraction": 0.4},
    },
}


@pytest.mark.parametrize("strategy", REPLAYED.values(), ids=REPLAYED)
def test_replay_with_a_schedule_gives_the_same_parameters(simulate: Simulate, strategy: Document) -> None:
    """The rate of every update follows from the logs: from the samples in the parameters before it."""
    trial = simulate(strategy, 4, cluster=LINKS, schedule=COSINE, batch=13)

    params = replay(trial.plan, trial.arrivals, trial.progress)

    assert hashlib.sha256(params.tobytes()).hexdigest() == digest(trial)


@pytest.mark.parametrize(
    "strategy",
    [ASP, REPLAYED["gba"] | {"servers": 1}, REPLAYED["ring to asp"], REPLAYED["promoted"], REPLAYED["easgd asp"]],
    ids=["asp", "gba", "ring to asp", "promoted", "easgd"],
)
@every_optimiser
def test_replay_with_clipping_gives_the_same_parameters(
    simulate: Simulate, strategy: Document, optimiser: Document
) -> None:
    """Layer-wise optimisers and norms of gradients, on one server and on workers with their own parameters."""
    work = {"schedule": COSINE, "clip_norm": CLIP, "optimiser": optimiser, "batch": 13}
    trial = simulate(strategy, 4, cluster=LINKS, **work)

    params = replay(trial.plan, trial.arrivals, trial.progress)

    assert hashlib.sha256(params.tobytes()).hexdigest() == digest(trial)


@pytest.mark.parametrize("change", ["rate_schedule", "clip_norm"])
def test_replay_with_another_schedule_or_limit_gives_other_parameters(simulate: Simulate, change: str) -> None:
    """The tests above can fail."""
    trial = simulate(ASP, 3, cluster=LINKS, schedule=COSINE, clip_norm=CLIP)
    other: Plan = trial.plan.model_copy(update={change: TrainingPlan.model_fields[change].default})

    assert replay(other, trial.arrivals, trial.progress).tobytes() != trial.params.tobytes()


@every_schedule
@pytest.mark.parametrize("fraction", [0.3, 0.6])
def test_schedule_continues_through_a_strategy_switch(simulate: Simulate, schedule: Document, fraction: float) -> None:
    """A switch between synchronous strategies trains the same model: a schedule that started again would not."""
    work = {"schedule": schedule, "precision": "fp64", "optimiser": SGD}
    switch = {"kind": "strategy_switch", "when": {"kind": "at", "fraction": fraction}}

    expected = simulate(RING, 3, **work)
    to_server = simulate(switch | {"before": RING, "after": TWO_SERVERS}, 3, **work)
    to_ring = simulate(switch | {"before": TWO_SERVERS, "after": RING}, 3, **work)

    for trial in (to_server, to_ring):
        assert trial.value("coordinator", "switch_committed")["loaded"]
        np.testing.assert_allclose(trial.epoch_params[-1], expected.epoch_params[-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("factor", [0.5, 1e-300])
def test_asynchronous_server_follows_the_schedule_by_its_samples(
    simulate: Simulate, workers: int, factor: float
) -> None:
    """For any number and speeds of workers, exactly the updates after half of the samples have the smaller rate.

    With a rate of zero, the result is that of the updates in the first half, with a constant rate.
    """
    schedule = {"kind": "step", "milestones": [0.5], "factor": factor}
    trial = simulate(ASP, workers, cluster=SLOW, schedule=schedule, optimiser=SGD, epochs=6)
    ((updates, drops),) = trial.arrivals
    before = np.cumsum([0, *(row["samples"] for row in updates)])[:-1]
    first_half = [row for row, samples in zip(updates, before, strict=True) if samples < trial.plan.sample_budget / 2]

    constant_rate = trial.plan.model_copy(update={"rate_schedule": ConstantSchedule()})
    params = replay(constant_rate, [ShardArrivals(first_half, drops)], trial.progress)

    assert 0 < len(first_half) < len(updates)
    assert (params.tobytes() == trial.params.tobytes()) == (factor < 1e-9)
