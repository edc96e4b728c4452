"""Laws of switching: its ends are the strategies that it is made of, and nothing is lost in between."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from itertools import groupby, pairwise, product
from typing import Any

import numpy as np
import pytest
from replay import replay

from services.cluster.links.fluid_link import goodput_bytes_per_s
from services.coordinator.runtime import CoordinatorRuntime
from services.runtime.control import StrategySwitchState
from services.schema.errors import ProtocolError
from services.strategies.switching.state_transfer import receive_model_vectors as really_take

RING = {"kind": "all_reduce"}
BSP = {"kind": "parameter_server", "servers": 2}
ASP = BSP | {"synchrony": {"kind": "asp"}}
ONE = {"kind": "parameter_server"}
BESIDE = {"kind": "parameter_server", "placement": {"kind": "colocated"}}
GBA = {"synchrony": {"kind": "gba", "oldest": 1}}
BACKUP = {"synchrony": {"kind": "backup", "backups": 1}}
PARTS = {
    "ring": RING,
    "bsp": BSP,
    "asp": ASP,
    "tree": RING | {"collective": {"kind": "tree"}},
    "ssp": BSP | {"synchrony": {"kind": "ssp", "staleness": 1}},
    "dssp": BSP | {"synchrony": {"kind": "dssp", "low": 0, "high": 2}},
    "gba": BSP | GBA,
    "backup": BSP | BACKUP,
    "gba of one": ONE | GBA,
    "backup of one": ONE | BACKUP,
    "compensated": ASP | {"compensation": {"kind": "dc_asgd_adaptive"}},
    "weighed": ASP | {"staleness": {"kind": "inverse"}, "rate": "as_given"},
    "beside": BESIDE,
    "promoted": ONE | {"placement": {"kind": "promoted"}},
    "asp promoted": ONE | {"placement": {"kind": "promoted"}, "synchrony": {"kind": "asp"}},
    "two promoted": ONE | {"placement": {"kind": "promoted", "workers": 2}, "synchrony": {"kind": "asp"}},
    "asp beside": BESIDE | {"synchrony": {"kind": "asp"}},
    "spare": BSP | {"synchrony": {"kind": "asp"}, "placement": {"kind": "spare"}},
}
FIRST = ("ring", "bsp", "asp")
WAYS = [(one, other) for one in FIRST for other in FIRST if one != other]
OTHERS = [
    ("ring", "tree"),
    *(("ring", after) for after in ("ssp", "dssp", "gba", "backup", "compensated", "beside", "asp beside", "spare")),
    *((before, "ring") for before in ("ssp", "dssp", "gba of one", "backup of one", "compensated")),
    *((before, "ring") for before in ("beside", "asp beside", "spare")),
    *(("ring", after) for after in ("promoted", "two promoted", "asp promoted")),
    ("beside", "asp beside"),
    ("bsp", "gba"),
    ("gba of one", "backup of one"),
    ("ssp", "bsp"),
]
OPTIMISERS = [
    {"kind": "sgd", "rate": 0.05},
    {"kind": "momentum", "rate": 0.05},
    {"kind": "adam", "rate": 0.01},
]
SLOW = {"groups": [{"name": "slow", "ranks": [0], "throughput": "250/s"}]}
LINKS = {
    "worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"},
    "server": {"uplink": "1mbit", "downlink": "1mbit"},
    **SLOW,
}

every_way = pytest.mark.parametrize(("before", "after"), WAYS)
every_pair = pytest.mark.parametrize(("before", "after"), [*WAYS, *OTHERS])
every_optimiser = pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda each: each["kind"])


def switch(before: str, after: str, when: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "strategy_switch", "before": PARTS[before], "after": PARTS[after], "when": when, **fields}


def at(**moment: float) -> dict[str, Any]:
    return {"kind": "at", **moment}


def digest(done: Any) -> str:
    return str(done.value("coordinator", "params_sha256"))


def seconds(done: Any) -> float:
    """Virtual seconds from the start of a run to its stop."""
    (start,), (stop,) = (done.events("coordinator", key) for key in ("run_start", "run_stop"))
    return float(stop["time_ms"] - start["time_ms"]) / 1e3


@every_optimiser
@pytest.mark.parametrize(("before", "after"), [("ring", "asp"), ("ring", "asp beside"), ("bsp", "asp")])
@pytest.mark.parametrize("never", [{"kind": "never"}, at(fraction=1)], ids=["never", "at the end"])
def test_a_switch_that_never_comes_is_the_strategy_before_to_the_last_bit(
    rehearse: Callable[..., Any], before: str, after: str, never: dict[str, Any], optimiser: dict[str, Any]
) -> None:
    """Servers that rest beside a ring may change neither its numbers nor its time."""
    whole = rehearse(PARTS[before], 3, cluster=LINKS, optimiser=optimiser)

    done = rehearse(switch(before, after, never), 3, cluster=LINKS, optimiser=optimiser)

    assert digest(done) == digest(whole)
    assert seconds(done) == seconds(whole)
    assert not done.events("coordinator", "switch_prepared")


@every_optimiser
@pytest.mark.parametrize(("before", "after"), [(one, other) for one, other in WAYS if one != "asp"])
def test_a_switch_before_the_first_step_is_the_strategy_after_to_the_last_bit(
    rehearse: Callable[..., Any], before: str, after: str, optimiser: dict[str, Any]
) -> None:
    """Also in time, and so in who comes when: everybody holds the first parameters already, nothing has to travel."""
    whole = rehearse(PARTS[after], 3, cluster=LINKS, optimiser=optimiser)

    done = rehearse(switch(before, after, at(step=0)), 3, cluster=LINKS, optimiser=optimiser)

    assert digest(done) == digest(whole)
    assert seconds(done) == pytest.approx(seconds(whole), abs=2e-6)


@every_optimiser
@pytest.mark.parametrize("fraction", [0.3, 0.5])
def test_all_ways_to_be_synchronous_are_one_way_before_and_after_a_switch(
    rehearse: Callable[..., Any], fraction: float, optimiser: dict[str, Any]
) -> None:
    """Ring and server update alike, so a run that goes from one to the other trains the same model, state and all."""
    whole = rehearse(RING, 3, optimiser=optimiser, precision="fp64")

    there = rehearse(switch("ring", "bsp", at(fraction=fraction)), 3, optimiser=optimiser, precision="fp64")
    back = rehearse(switch("bsp", "ring", at(fraction=fraction)), 3, optimiser=optimiser, precision="fp64")

    for done in (there, back):
        np.testing.assert_allclose(done.carried[-1], whole.carried[-1], rtol=1e-9, atol=1e-12)
        assert done.value("coordinator", "switch_committed")["loaded"]


@every_way
@pytest.mark.parametrize("batch", [12, 13])
def test_a_budget_is_as_many_samples_with_a_switch_as_without(
    rehearse: Callable[..., Any], before: str, after: str, batch: int
) -> None:
    """Every sample in an update was computed by somebody; out of lockstep whoever computes at the end finishes."""
    done = rehearse(switch(before, after, at(fraction=0.4)), 3, batch=batch, cluster=LINKS)

    (stop,) = done.events("coordinator", "run_stop")
    budget, told = done.plan.epochs * done.plan.train_samples, stop["metadata"]["samples_count"]
    over = batch if "asp" in (before, after) else 0
    assert budget <= told <= budget + over
    assert sum(row["samples"] for rank in range(3) for row in done.steps(rank)) == told
    assert done.value("coordinator", "switch_committed")["step"] > 0


@pytest.mark.parametrize("before", ["ring", "bsp"])
def test_every_worker_goes_on_with_the_samples_after_its_last_ones(rehearse: Callable[..., Any], before: str) -> None:
    """From lockstep on, each rank's steps are 0, 1, 2, … without gap or repeat: so are its samples."""
    done = rehearse(switch(before, "asp", at(step=8)), 3, cluster=LINKS)

    for rank in range(3):
        assert [row["step"] for row in done.steps(rank)] == list(range(len(done.steps(rank))))
    steps = [row["push_step"] for row in done.rows("server-0", "shard_updates")]
    pushes = [(row["worker"], row["push_step"]) for row in done.rows("server-0", "shard_updates")]
    assert len(set(pushes)) == len(pushes)
    assert min(steps) == (8 if before == "ring" else 0)


def test_an_event_begins_when_its_step_is_skipped(rehearse: Callable[..., Any]) -> None:
    """Out of lockstep all go on from the step of the fastest, and a trial whose events never come is invalid."""
    skips = rehearse(switch("asp", "ring", at(fraction=0.4)), 3, cluster=SLOW)
    done_steps = [row["step"] for row in skips.steps(0)]
    last, first = next((one, other) for one, other in pairwise(done_steps) if other > one + 1)

    pause = {"kind": "pause", "of": ["worker-0"], "at": {"step": last + 1}, "lasts": "10ms"}
    done = rehearse(switch("asp", "ring", at(fraction=0.4)), 3, cluster=SLOW, events=[pause])

    assert [row["step"] for row in done.steps(0)] == done_steps
    begun = [event["value"] for event in done.events("worker-0", "event_applied")]
    (at_first,) = [row["start_s"] for row in done.steps(0) if row["step"] == first]
    (start,) = done.events("coordinator", "run_start")
    assert [each["phase"] for each in begun] == ["begin", "end"]
    assert start["time_ms"] / 1e3 + begun[0]["planned_s"] == pytest.approx(at_first, abs=1e-4)


@every_pair
def test_all_nodes_hold_the_same_bits_at_the_hand_over(
    rehearse: Callable[..., Any], before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What servers and workers begin with is compared by their own digests, not by what somebody should have sent."""
    told: list[StrategySwitchState] = []
    hand_over = CoordinatorRuntime.report_switch_state

    async def listen(desk: CoordinatorRuntime, held: StrategySwitchState) -> Any:
        told.append(held)
        return await hand_over(desk, held)

    monkeypatch.setattr(CoordinatorRuntime, "report_switch_state", listen)
    done = rehearse(switch(before, after, at(fraction=0.4)), 3, cluster=LINKS)

    truth = done.value("coordinator", "switch_committed")["params_sha256"]
    last = {(held.node_name, held.is_server): held.params_digests for held in told}  # what each said last
    for rank in range(3):
        assert list(last[f"worker-{rank}", False]) == truth
    if done.plan.strategy.training_phases().switch.second.kind == "parameter_server":
        assert [last[name, True][0] for name in done.plan.shard_owners] == truth


@every_pair
@pytest.mark.parametrize("policy", ["carry", "zero", "reset"])
def test_the_order_of_arrival_replays_across_a_switch_to_the_same_parameters(
    rehearse: Callable[..., Any], before: str, after: str, policy: str
) -> None:
    """What one strategy hands to the next is no more than the logs say: all bits of the result follow from it."""
    strategy = switch(before, after, at(fraction=0.4), optimiser_state=policy)
    done = rehearse(strategy, 3, cluster=LINKS, optimiser={"kind": "adam", "rate": 0.01}, batch=13)

    params = replay(done.plan, done.arrivals, done.course)

    assert done.course.switched is not None
    assert hashlib.sha256(params.tobytes()).hexdigest() == digest(done)


@pytest.mark.parametrize(("before", "after"), [("ring", "asp"), ("asp", "ring")])
def test_a_replay_that_takes_the_switch_for_another_step_ends_elsewhere(
    rehearse: Callable[..., Any], before: str, after: str
) -> None:
    """So that the law above can fail."""
    done = rehearse(switch(before, after, at(fraction=0.4)), 3, cluster=LINKS)
    early = done.course._replace(switched=done.course.switched - 1)

    try:
        params = replay(done.plan, done.arrivals, early)
    except ProtocolError:
        return
    assert hashlib.sha256(params.tobytes()).hexdigest() != digest(done)


@every_pair
def test_bytes_of_both_phases_and_of_the_hand_over_are_those_of_the_plan(
    rehearse: Callable[..., Any], before: str, after: str
) -> None:
    """A hand-over is traffic like any other: known before the run, exactly."""
    done = rehearse(switch(before, after, at(fraction=0.4)), 3, cluster=LINKS)
    plan, commit = done.plan, done.value("coordinator", "switch_committed")
    (committed,) = done.events("coordinator", "switch_committed")

    ends_ms = committed["time_ms"] - 2e-3
    early = {f"worker-{rank}": sum(row["start_s"] * 1e3 < ends_ms for row in done.steps(rank)) for rank in range(3)}
    computing = [node for node, share in zip(early, plan.second_phase.worker_weights, strict=True) if share]
    late = {node: len(done.steps(rank)) - early[node] for rank, node in enumerate(early) if node in computing}
    for node in early:
        moved = plan.second_phase.hand_over_bytes[node] if commit["loaded"] else 0
        expected = sent(plan, node, early) + sent(plan.second_phase, node, late) + moved
        assert done.value(node, "node_stop")["payload_bytes_sent"] == pytest.approx(expected, abs=0.01)
        if node not in plan.shard_owners:
            assert done.value(node, "node_switch")["bytes_sent"] == moved


def sent(part: Any, node: str, steps: dict[str, int]) -> float:
    """Payload bytes of a worker under one strategy: for its own steps, and for others' where it serves them."""
    answered = part.reply_bytes_per_step.get(node, 0)
    others = [count for name, count in steps.items() if name != node]
    return (part.bytes_per_step[node] - answered) * steps.get(node, 0) + answered * sum(others) / max(1, len(others))


@pytest.mark.parametrize(("before", "after"), OTHERS)
def test_every_sample_is_in_an_update_or_said_to_be_dropped(
    rehearse: Callable[..., Any], before: str, after: str
) -> None:
    """Also what waits at a server for others when a switch comes; dropped gradients are no progress."""
    done = rehearse(switch(before, after, at(fraction=0.4)), 3, cluster=LINKS)

    (stop,) = done.events("coordinator", "run_stop")
    budget, told = done.plan.epochs * done.plan.train_samples, stop["metadata"]["samples_count"]
    holder = done.plan.shard_owners[0] if done.plan.shard_owners else "worker-0"
    dropped = sum(row["samples"] for row in done.rows(holder, "shard_drops"))
    assert budget <= told <= budget + done.plan.batch
    assert sum(row["samples"] for rank in range(3) for row in done.steps(rank)) == told + dropped
    assert done.value("coordinator", "switch_committed")["step"] > 0


@pytest.mark.parametrize("policy", ["carry", "zero", "reset"])
def test_the_optimisers_state_follows_its_policy(rehearse: Callable[..., Any], policy: str) -> None:
    """Recomputed by hand: one worker, so nothing is stale, and a switch that changes nothing but the state."""
    done = rehearse(
        switch("ring", "asp", at(step=5), optimiser_state=policy), 1, optimiser={"kind": "adam", "rate": 0.01}
    )
    plan, data = done.plan, done.plan.dataset.load(done.plan.dtype)
    params = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    state = plan.optimiser.init_state(params)
    for step in range(plan.steps):
        if step == 5:
            state = plan.strategy.training_phases().switch.optimiser_state_after_switch(plan.optimiser, params, state)
        share = plan.data_order.batch_sample_indices(step)
        _, gradient = plan.model.loss_and_grad(data.task, params, data.train_x[share], data.train_y[share])
        params, state = plan.optimiser.update_params(params, gradient, state)

    assert done.params.tobytes() == params.tobytes()
    assert state.update_count == plan.steps - (5 if policy == "reset" else 0)


@pytest.mark.parametrize(
    ("policy", "before", "after", "factor"),
    [
        ("keep_per_sample", "ring", "asp", 1 / 4),
        ("keep_per_sample", "asp", "ring", 4),
        ("keep_per_sample", "ring", "bsp", 1),
        ("keep_per_sample", "weighed", "ring", 1),
        ("keep_per_sample", "weighed", "asp", 1 / 4),
        ("keep", "ring", "asp", 1),
        (0.5, "ring", "asp", 0.5),
    ],
)
def test_the_learning_rate_follows_its_policy(
    rehearse: Callable[..., Any], policy: str | float, before: str, after: str, factor: float
) -> None:
    """Per sample: an update from one gradient of four uses a quarter of the rate, and back four times as much.

    Where the age of gradients made a quarter of the rate already, the whole rate is what lockstep goes on with.
    """
    plan = rehearse(switch(before, after, at(fraction=0.5), rate=policy), 4, batch=16).plan

    assert plan.second_phase.optimiser.rate == pytest.approx(factor * plan.optimiser.rate)


def test_a_plateau_is_decided_once_and_its_value_is_logged_to_the_end(rehearse: Callable[..., Any]) -> None:
    """The rule's record shows why it fired, and what it would have said later."""
    rule = {"kind": "plateau", "window": 2, "threshold": 0.5, "min_points": 2, "loss": "train"}
    done = rehearse(switch("ring", "asp", rule), 3, epochs=8)

    found = [(event["metadata"], event["value"]) for event in done.events("coordinator", "switch_rule")]
    first = next(where["step"] for where, value in found if value["fires"])
    assert done.value("coordinator", "switch_committed")["step"] == first
    assert len(found) >= 6
    assert all(value["fires"] == (value["value"] <= 0.5) for _, value in found if value["value"] is not None)


def test_a_plateau_switches_an_asynchronous_run_too(rehearse: Callable[..., Any]) -> None:
    """Nobody waits at an evaluation there, so everybody is called."""
    rule = {"kind": "plateau", "window": 2, "threshold": 0.5, "min_points": 2, "loss": "train"}
    done = rehearse(switch("asp", "ring", rule), 3, epochs=8, cluster=LINKS)

    committed = done.value("coordinator", "switch_committed")
    hashes = [event for rank in range(3) for event in done.events(f"worker-{rank}", "node_hash")]
    by_step = groupby(sorted((event["metadata"]["step"], event["value"]) for event in hashes), key=lambda each: each[0])
    assert committed["loaded"]
    assert all(len({value for _, value in group}) == 1 for _, group in by_step)


@pytest.mark.parametrize(("before", "after"), [("asp", "ring"), ("ring", "asp")])
def test_the_rule_is_on_record_at_every_evaluation_point(rehearse: Callable[..., Any], before: str, after: str) -> None:
    """Also at the last one, when everybody has left and the servers' parameters are measured."""
    rule = {"kind": "plateau", "force_at": 2, "window": 2, "threshold": 1e-9}
    done = rehearse(switch(before, after, rule), 3, cluster=LINKS, epochs=5)

    judged, measured = (done.events("coordinator", key) for key in ("switch_rule", "eval_metrics"))
    assert [each["value"]["loss"] for each in judged] == [each["value"]["loss"] for each in measured]
    assert [each["metadata"]["step"] for each in judged] == [each["metadata"]["step"] for each in measured]
    assert done.value("coordinator", "switch_committed")


def test_the_last_pass_of_a_rule_that_looks_at_training_is_on_record(rehearse: Callable[..., Any]) -> None:
    """Out of lockstep fast workers use up the budget, so that slow ones never report their last epoch."""
    rule = {"kind": "plateau", "loss": "train", "window": 2, "threshold": 1e-9}
    done = rehearse(switch("asp", "ring", rule), 3, cluster=SLOW, epochs=5)

    passes = done.events("coordinator", "train_loss")
    judged = done.events("coordinator", "switch_rule")
    assert len(passes) < len(judged) == len(passes) + 1
    assert [each["metadata"]["epoch_num"] for each in judged] == [*range(1, len(judged) + 1)]


def test_losses_that_are_not_finite_end_the_run_and_say_so(rehearse: Callable[..., Any]) -> None:
    """Nothing comes of a model that has diverged; a rule that waits for it to settle would wait for ever."""
    with np.errstate(all="ignore"):
        done = rehearse(
            switch("ring", "asp", {"kind": "plateau"}), 2, epochs=40, optimiser={"kind": "sgd", "rate": 1e30}
        )

    (stop,) = done.events("coordinator", "run_stop")
    assert (stop["metadata"]["status"], stop["metadata"]["reason"]) == ("aborted", "3 losses were not finite")
    assert not done.events("coordinator", "switch_committed")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ring", "asp"),
        ("asp", "ring"),
        ("asp", "bsp"),
        ("ring", "asp beside"),
        ("asp beside", "ring"),
        ("dssp", "ring"),
        ("gba of one", "ring"),
    ],
)
def test_what_was_loaded_wrongly_aborts_the_switch_and_changes_nothing(
    rehearse: Callable[..., Any], before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit everybody still has what it had: the run is the one that never switches."""

    async def badly(transport: Any, source: str, step: int, into: Any) -> None:
        await really_take(transport, source, step, into)
        into[0][0] += 1

    for module in ("services.worker.strategy_switch", "services.ps_shard.strategy_switch"):
        monkeypatch.setattr(f"{module}.receive_model_vectors", badly)

    done = rehearse(switch(before, after, at(fraction=0.4)), 3, cluster=SLOW)

    assert "differs from the model that was sent" in done.value("coordinator", "switch_aborted")["reason"]
    assert not done.events("coordinator", "switch_committed")
    (stop,) = done.events("coordinator", "run_stop")
    budget = done.plan.epochs * done.plan.train_samples
    assert budget <= stop["metadata"]["samples_count"] <= budget + done.plan.batch
    if before == "ring":
        assert digest(done) == digest(rehearse(RING, 3, cluster=SLOW))


def test_replicas_that_differ_abort_the_switch(rehearse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch would hide it: servers know one model only."""
    hand_over = CoordinatorRuntime.report_switch_state

    async def differ(desk: CoordinatorRuntime, held: StrategySwitchState) -> Any:
        told = (
            StrategySwitchState(held.node_name, held.stage, held.next_step, params_digests=("other",))
            if held.node_name == "worker-1"
            else held
        )
        return await hand_over(desk, told)

    monkeypatch.setattr(CoordinatorRuntime, "report_switch_state", differ)
    done = rehearse(switch("ring", "asp", at(step=4)), 3)

    assert "replicas differ" in done.value("coordinator", "switch_aborted")["reason"]


def test_a_node_that_never_comes_aborts_the_switch(
    rehearse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patience is a step's timeout; then all go on as before, and the log says why."""

    async def sleep(desk: CoordinatorRuntime) -> bool:
        while not desk._is_switch_wait_cancelled:
            await desk.clock.sleep_until(desk.clock.now() + 1.0)
        return False

    monkeypatch.setattr(CoordinatorRuntime, "await_strategy_switch", sleep)
    done = rehearse(switch("ring", "asp", at(step=4)), 3, timeouts={"step": "2s"})

    aborted = done.value("coordinator", "switch_aborted")
    assert aborted["reason"] == "a node did not report its state within 2 s"
    assert aborted["seconds"] == pytest.approx(2)
    assert digest(done) == digest(rehearse(RING, 3))


@pytest.mark.parametrize(("giver", "before", "after"), [("worker", "ring", "asp"), ("ps_shard", "asp", "ring")])
def test_who_gives_in_vain_gives_up_with_the_coordinator_and_goes_on(
    rehearse: Callable[..., Any], giver: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be sent waits without end, and all the others would wait for the giver's next step."""

    async def in_vain(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(f"services.{giver}.strategy_switch.send_model_vectors", in_vain)
    done = rehearse(switch(before, after, at(fraction=0.4)), 3, cluster=SLOW, timeouts={"step": "2s"})

    assert "within 2 s" in done.value("coordinator", "switch_aborted")["reason"]
    (stop,) = done.events("coordinator", "run_stop")
    budget = done.plan.epochs * done.plan.train_samples
    assert budget <= stop["metadata"]["samples_count"] <= budget + done.plan.batch
    if before == "ring":
        assert digest(done) == digest(rehearse(RING, 3, cluster=SLOW))


def test_a_resting_server_that_is_cut_off_does_not_hold_up_the_ring(rehearse: Callable[..., Any]) -> None:
    """Until the switch nobody has needed it, and after an abort nobody does."""
    cut = {"kind": "partition", "at": {"step": 4}, "apart": ["server-0"], "lasts": "20s"}
    done = rehearse(switch("ring", "asp", at(step=6)), 3, cluster=LINKS, events=[cut], timeouts={"step": "5s"})

    assert "within 5 s" in done.value("coordinator", "switch_aborted")["reason"]
    assert digest(done) == digest(rehearse(RING, 3, cluster=LINKS))


def test_a_switch_costs_what_its_bytes_cost_and_less_than_three_steps(rehearse: Callable[..., Any]) -> None:
    """Parameters and momentum once through the server's link; replicas share the sending."""
    work = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [64]}, "batch": 240}
    equal = {key: value for key, value in LINKS.items() if key != "groups"}
    one = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    strategy = {"kind": "strategy_switch", "before": RING, "after": one, "when": at(epoch=1)}
    done = rehearse(strategy, 4, cluster=equal, epochs=2, **work)

    took = done.value("coordinator", "switch_committed")["seconds"]

    assert took == pytest.approx(2 * done.plan.vector_bytes / goodput_bytes_per_s(1e6), rel=0.05)
    assert took <= 3 * done.plan.predicted.step_s


@pytest.mark.parametrize(("before", "after"), [("ring", "asp"), ("bsp", "asp"), ("asp", "bsp")])
@pytest.mark.parametrize("fraction", [0.25, 0.6])
def test_the_time_of_a_run_is_that_of_its_parts(
    rehearse: Callable[..., Any], before: str, after: str, fraction: float
) -> None:
    """T = p·T_before + (1 - p)·T_after + T_switch, p of the samples: nothing else costs time."""
    work = {"cluster": LINKS, "epochs": 12, "batch": 24}
    first, second = rehearse(PARTS[before], 4, **work), rehearse(PARTS[after], 4, **work)
    done = rehearse(switch(before, after, at(fraction=fraction)), 4, **work)

    committed = done.value("coordinator", "switch_committed")
    p = committed["samples"] / (done.plan.epochs * done.plan.train_samples)
    law = p * seconds(first) + (1 - p) * seconds(second) + committed["seconds"]
    assert seconds(done) == pytest.approx(law, rel=0.03)


def test_sync_switch_is_a_switch_between_two_ways_to_serve(rehearse: Callable[..., Any]) -> None:
    """The thin member and the long way of writing it train the same model at the same times."""
    long = rehearse(switch("bsp", "asp", at(fraction=0.25)), 3, cluster=LINKS)

    thin = rehearse({"kind": "sync_switch", "servers": 2, "fraction": 0.25}, 3, cluster=LINKS)

    assert digest(thin) == digest(long)
    assert seconds(thin) == seconds(long)


def test_two_rings_switch_without_a_server(rehearse: Callable[..., Any]) -> None:
    """Nothing has to travel between replicas; formats may change all the same."""
    strategy = {
        "kind": "strategy_switch",
        "before": RING | {"compress": {"kind": "fp16"}},
        "after": RING,
        "when": at(fraction=0.5),
    }
    done = rehearse(strategy, 3)

    assert not done.value("coordinator", "switch_committed")["loaded"]
    assert done.plan.servers == 0


@pytest.mark.slow
def test_a_run_of_64_workers_repeats_to_the_last_bit(rehearse: Callable[..., Any]) -> None:
    """Virtual time is deterministic, also where many come to a hand-over at once."""
    work = {"batch": 64, "epochs": 10, "cluster": SLOW}
    one, other = (rehearse(switch("ring", "asp", at(fraction=0.5)), 64, **work) for _ in range(2))

    assert digest(one) == digest(other)
    assert one.lines["coordinator"] == other.lines["coordinator"]


PROMOTED = ["promoted", "two promoted", "asp promoted"]


@pytest.mark.parametrize("after", PROMOTED)
@pytest.mark.parametrize(("batch", "step"), [(12, 8), (13, 9), (12, 7)])
def test_every_sample_of_an_epoch_is_seen_once_though_workers_become_servers(
    rehearse: Callable[..., Any], after: str, batch: int, step: int
) -> None:
    """Those who are left share the batches of those who serve from then on, in the middle of an epoch or at its end."""
    done = rehearse(switch("ring", after, at(step=step)), 4, batch=batch)  # equal speeds: everybody does as many steps

    last = (
        3 if done.plan.second_phase.is_synchronous else 2
    )  # of the last epoch, who is faster at its end takes from the next
    seen = Counter(
        (step // done.plan.steps_per_epoch, int(sample))
        for rank in range(4)
        for step in (row["step"] for row in done.steps(rank))
        for sample in done.plan.data_order.rank_sample_indices(
            step, rank, (1,) * 4 if step < switched(done) else done.plan.second_phase.worker_weights
        )
    )
    whole = {each: count for each, count in seen.items() if each[0] < last}
    assert whole == dict.fromkeys(product(range(last), range(done.plan.train_samples)), 1)


@pytest.mark.parametrize("after", PROMOTED)
def test_promoted_workers_compute_to_the_switch_and_serve_from_there_on(
    rehearse: Callable[..., Any], after: str
) -> None:
    """The last ranks hold all of the model between them; nobody pushes to himself, nobody is left out."""
    done = rehearse(switch("ring", after, at(step=8)), 4, cluster=LINKS)
    promoted = [node for node, share in zip(names(4), done.plan.second_phase.worker_weights, strict=True) if not share]

    assert list(done.plan.shard_owners) == promoted == names(4)[-len(promoted) :]
    for rank, name in enumerate(names(4)):
        assert (max(row["step"] for row in done.steps(rank)) < 8) == (name in promoted)
    for holder in promoted:
        pushes = [(row["worker"], row["push_step"]) for row in done.rows(holder, "shard_updates")]
        assert {worker for worker, _ in pushes} == set(range(4 - len(promoted)))
        assert len(set(pushes)) == len(pushes)
        assert min(step for _, step in pushes) == 8


def test_promoted_servers_begin_with_their_own_replica_and_nothing_travels(rehearse: Callable[..., Any]) -> None:
    """What every replica holds need not be sent; momentum neither."""
    done = rehearse(switch("ring", "two promoted", at(step=8)), 4, cluster=LINKS)

    assert set(done.plan.second_phase.hand_over_bytes.values()) == {0}
    for rank in range(4):
        assert done.value(f"worker-{rank}", "node_switch")["bytes_sent"] == 0
    assert done.value("coordinator", "switch_committed")["loaded"]


@every_optimiser
def test_a_promoted_server_in_lockstep_trains_what_the_ring_would_have(
    rehearse: Callable[..., Any], optimiser: dict[str, Any]
) -> None:
    """The same batches cut into fewer shares: rounding apart, the same model."""
    whole = rehearse(RING, 4, optimiser=optimiser, precision="fp64")

    done = rehearse(switch("ring", "promoted", at(step=8)), 4, optimiser=optimiser, precision="fp64")

    assert [event["metadata"]["epoch_num"] for event in done.events("coordinator", "train_loss")] == [1, 2, 3]
    np.testing.assert_allclose(done.carried[-1], whole.carried[-1], rtol=1e-9, atol=1e-12)


def test_the_rate_after_a_promotion_is_that_of_a_larger_share(rehearse: Callable[..., Any]) -> None:
    """Of four workers one serves: a gradient holds a third of a batch, and its update uses a third of the rate."""
    plan = rehearse(switch("ring", "asp promoted", at(step=8)), 4).plan

    assert plan.second_phase.optimiser.rate == pytest.approx(plan.optimiser.rate / 3)


@pytest.mark.parametrize("after", ["promoted", "asp promoted"])
def test_a_step_after_a_promotion_takes_what_the_closed_form_says(rehearse: Callable[..., Any], after: str) -> None:
    """Fewer workers compute larger shares; who is answered first in lockstep computes behind the others' answers."""
    equal = {key: value for key, value in LINKS.items() if key != "groups"}
    done = rehearse(switch("ring", after, at(step=3)), 4, cluster=equal, batch=40, epochs=8)

    settled = [row["step_s"] for rank in range(3) for row in done.steps(rank) if 5 <= row["step"] < 14]

    predicted_s = done.plan.second_phase.predicted.step_s
    early_s = 2 * done.plan.vector_bytes / goodput_bytes_per_s(1e6) if after == "promoted" else 0.0
    assert predicted_s - early_s - 1e-5 <= np.mean(settled) <= 1.05 * predicted_s


def names(workers: int) -> list[str]:
    return [f"worker-{rank}" for rank in range(workers)]


def switched(done: Any) -> int:
    return int(done.value("coordinator", "switch_committed")["step"])
