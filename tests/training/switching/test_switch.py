"""Properties of strategy switches: limits equal a single strategy, and no sample or byte is lost or counted twice."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from itertools import groupby, pairwise, product
from typing import Any

import numpy as np
import pytest
from replay import replay

from services.cluster.links.fluid_link import to_goodput_bytes_per_s
from services.coordinator.runtime import CoordinatorRuntime
from services.runtime.control import SwitchStageReport
from services.schema.errors import ProtocolError
from services.strategies.switching.state_transfer import receive_model_vectors

RING = {"kind": "all_reduce"}
BSP = {"kind": "parameter_server", "servers": 2}
ASP = BSP | {"synchrony": {"kind": "asp"}}
ONE_SERVER = {"kind": "parameter_server"}
COLOCATED = {"kind": "parameter_server", "placement": {"kind": "colocated"}}
GBA = {"synchrony": {"kind": "gba", "oldest": 1}}
BACKUP = {"synchrony": {"kind": "backup", "backups": 1}}
STRATEGIES = {
    "ring": RING,
    "bsp": BSP,
    "asp": ASP,
    "tree": RING | {"collective": {"kind": "tree"}},
    "ssp": BSP | {"synchrony": {"kind": "ssp", "staleness": 1}},
    "dssp": BSP | {"synchrony": {"kind": "dssp", "low": 0, "high": 2}},
    "gba": BSP | GBA,
    "backup": BSP | BACKUP,
    "gba on one server": ONE_SERVER | GBA,
    "backup on one server": ONE_SERVER | BACKUP,
    "compensated": ASP | {"compensation": {"kind": "dc_asgd_adaptive"}},
    "weighted": ASP | {"staleness": {"kind": "inverse"}, "rate": "as_given"},
    "colocated": COLOCATED,
    "promoted": ONE_SERVER | {"placement": {"kind": "promoted"}},
    "asp promoted": ONE_SERVER | {"placement": {"kind": "promoted"}, "synchrony": {"kind": "asp"}},
    "two promoted": ONE_SERVER | {"placement": {"kind": "promoted", "workers": 2}, "synchrony": {"kind": "asp"}},
    "asp colocated": COLOCATED | {"synchrony": {"kind": "asp"}},
    "spare": BSP | {"synchrony": {"kind": "asp"}, "placement": {"kind": "spare"}},
}
BASIC = ("ring", "bsp", "asp")
BASIC_PAIRS = [(before, after) for before in BASIC for after in BASIC if before != after]
OTHER_PAIRS = [
    ("ring", "tree"),
    *(
        ("ring", after)
        for after in ("ssp", "dssp", "gba", "backup", "compensated", "colocated", "asp colocated", "spare")
    ),
    *((before, "ring") for before in ("ssp", "dssp", "gba on one server", "backup on one server", "compensated")),
    *((before, "ring") for before in ("colocated", "asp colocated", "spare")),
    *(("ring", after) for after in ("promoted", "two promoted", "asp promoted")),
    ("colocated", "asp colocated"),
    ("bsp", "gba"),
    ("gba on one server", "backup on one server"),
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

every_basic_pair = pytest.mark.parametrize(("before", "after"), BASIC_PAIRS)
every_pair = pytest.mark.parametrize(("before", "after"), [*BASIC_PAIRS, *OTHER_PAIRS])
every_optimiser = pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: optimiser["kind"])


def switch(before: str, after: str, when: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "strategy_switch", "before": STRATEGIES[before], "after": STRATEGIES[after], "when": when, **fields}


def at_rule(**moment: float) -> dict[str, Any]:
    return {"kind": "at", **moment}


def digest(trial: Any) -> str:
    return str(trial.value("coordinator", "params_sha256"))


def run_seconds(trial: Any) -> float:
    """Return the virtual seconds from the start of a run to its stop."""
    (start,), (stop,) = (trial.events("coordinator", key) for key in ("run_start", "run_stop"))
    return float(stop["time_ms"] - start["time_ms"]) / 1e3


@every_optimiser
@pytest.mark.parametrize(("before", "after"), [("ring", "asp"), ("ring", "asp colocated"), ("bsp", "asp")])
@pytest.mark.parametrize("never", [{"kind": "never"}, at_rule(fraction=1)], ids=["never", "at the end"])
def test_run_without_a_switch_equals_the_first_strategy_bitwise(
    simulate: Callable[..., Any], before: str, after: str, never: dict[str, Any], optimiser: dict[str, Any]
) -> None:
    """Idle servers beside a ring must change neither its values nor its time."""
    expected = simulate(STRATEGIES[before], 3, cluster=LINKS, optimiser=optimiser)

    trial = simulate(switch(before, after, never), 3, cluster=LINKS, optimiser=optimiser)

    assert digest(trial) == digest(expected)
    assert run_seconds(trial) == run_seconds(expected)
    assert not trial.events("coordinator", "switch_prepared")


@every_optimiser
@pytest.mark.parametrize(("before", "after"), [(first, second) for first, second in BASIC_PAIRS if first != "asp"])
def test_switch_before_the_first_step_equals_the_second_strategy_bitwise(
    simulate: Callable[..., Any], before: str, after: str, optimiser: dict[str, Any]
) -> None:
    """Also in time and order of arrival: all nodes have the initial parameters already, so nothing is sent."""
    expected = simulate(STRATEGIES[after], 3, cluster=LINKS, optimiser=optimiser)

    trial = simulate(switch(before, after, at_rule(step=0)), 3, cluster=LINKS, optimiser=optimiser)

    assert digest(trial) == digest(expected)
    assert run_seconds(trial) == pytest.approx(run_seconds(expected), abs=2e-6)


@every_optimiser
@pytest.mark.parametrize("fraction", [0.3, 0.5])
def test_switch_between_synchronous_strategies_equals_a_run_without_a_switch(
    simulate: Callable[..., Any], fraction: float, optimiser: dict[str, Any]
) -> None:
    """Ring and server compute the same updates, so a switch between them trains the same model and optimiser state."""
    expected = simulate(RING, 3, optimiser=optimiser, precision="fp64")

    to_server = simulate(switch("ring", "bsp", at_rule(fraction=fraction)), 3, optimiser=optimiser, precision="fp64")
    to_ring = simulate(switch("bsp", "ring", at_rule(fraction=fraction)), 3, optimiser=optimiser, precision="fp64")

    for trial in (to_server, to_ring):
        np.testing.assert_allclose(trial.epoch_params[-1], expected.epoch_params[-1], rtol=1e-9, atol=1e-12)
        assert trial.value("coordinator", "switch_committed")["loaded"]


@every_basic_pair
@pytest.mark.parametrize("batch", [12, 13])
def test_run_with_a_switch_uses_the_same_budget_of_samples(
    simulate: Callable[..., Any], before: str, after: str, batch: int
) -> None:
    """Workers computed every sample in an update; asynchronous ones finish their step at the end of the budget."""
    trial = simulate(switch(before, after, at_rule(fraction=0.4)), 3, batch=batch, cluster=LINKS)

    (stop,) = trial.events("coordinator", "run_stop")
    budget, used = trial.plan.epochs * trial.plan.train_samples, stop["metadata"]["samples_count"]
    excess = batch if "asp" in (before, after) else 0
    assert budget <= used <= budget + excess
    assert sum(row["samples"] for rank in range(3) for row in trial.steps(rank)) == used
    assert trial.value("coordinator", "switch_committed")["step"] > 0


@pytest.mark.parametrize("before", ["ring", "bsp"])
def test_every_worker_continues_after_its_last_samples(simulate: Callable[..., Any], before: str) -> None:
    """After a synchronous phase the steps of each rank are 0, 1, 2, … without gap or repetition; so are its samples."""
    trial = simulate(switch(before, "asp", at_rule(step=8)), 3, cluster=LINKS)

    for rank in range(3):
        assert [row["step"] for row in trial.steps(rank)] == list(range(len(trial.steps(rank))))
    steps = [row["push_step"] for row in trial.rows("server-0", "shard_updates")]
    pushes = [(row["worker"], row["push_step"]) for row in trial.rows("server-0", "shard_updates")]
    assert len(set(pushes)) == len(pushes)
    assert min(steps) == (8 if before == "ring" else 0)


def test_event_begins_when_its_step_is_skipped(simulate: Callable[..., Any]) -> None:
    """After an asynchronous phase all continue from the step of the fastest; a missed event invalidates a trial."""
    without_event = simulate(switch("asp", "ring", at_rule(fraction=0.4)), 3, cluster=SLOW)
    expected_steps = [row["step"] for row in without_event.steps(0)]
    last, first = next((step, after) for step, after in pairwise(expected_steps) if after > step + 1)

    pause = {"kind": "pause", "of": ["worker-0"], "at": {"step": last + 1}, "lasts": "10ms"}
    trial = simulate(switch("asp", "ring", at_rule(fraction=0.4)), 3, cluster=SLOW, events=[pause])

    assert [row["step"] for row in trial.steps(0)] == expected_steps
    applied = [event["value"] for event in trial.events("worker-0", "event_applied")]
    (first_start_s,) = [row["start_s"] for row in trial.steps(0) if row["step"] == first]
    (start,) = trial.events("coordinator", "run_start")
    assert [event["phase"] for event in applied] == ["begin", "end"]
    assert start["time_ms"] / 1e3 + applied[0]["planned_s"] == pytest.approx(first_start_s, abs=1e-4)


@every_pair
def test_all_nodes_have_bitwise_equal_parameters_at_the_strategy_switch(
    simulate: Callable[..., Any], before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers and workers compute their own digests of their parameters, so errors in the transfer are detected."""
    states: list[SwitchStageReport] = []
    report_strategy_switch = CoordinatorRuntime.report_strategy_switch

    async def record_state(runtime: CoordinatorRuntime, state: SwitchStageReport) -> Any:
        states.append(state)
        return await report_strategy_switch(runtime, state)

    monkeypatch.setattr(CoordinatorRuntime, "report_strategy_switch", record_state)
    trial = simulate(switch(before, after, at_rule(fraction=0.4)), 3, cluster=LINKS)

    expected = trial.value("coordinator", "switch_committed")["params_sha256"]
    last = {(state.node_name, state.is_server): state.params_digests for state in states}  # by node: last report
    for rank in range(3):
        assert list(last[f"worker-{rank}", False]) == expected
    if trial.plan.strategy.training_phases().switch.second.kind == "parameter_server":
        assert [last[name, True][0] for name in trial.plan.shard_owners] == expected


@every_pair
@pytest.mark.parametrize("policy", ["carry", "zero", "reset"])
def test_replay_across_a_switch_gives_the_same_parameters(
    simulate: Callable[..., Any], before: str, after: str, policy: str
) -> None:
    """The first strategy hands over only what the logs contain, so all bits of the result follow from the logs."""
    strategy = switch(before, after, at_rule(fraction=0.4), optimiser_state=policy)
    trial = simulate(strategy, 3, cluster=LINKS, optimiser={"kind": "adam", "rate": 0.01}, batch=13)

    params = replay(trial.plan, trial.arrivals, trial.progress)

    assert trial.progress.switch_step is not None
    assert hashlib.sha256(params.tobytes()).hexdigest() == digest(trial)


@pytest.mark.parametrize(("before", "after"), [("ring", "asp"), ("asp", "ring")])
def test_replay_with_the_switch_at_another_step_gives_other_parameters(
    simulate: Callable[..., Any], before: str, after: str
) -> None:
    """The test above can fail."""
    trial = simulate(switch(before, after, at_rule(fraction=0.4)), 3, cluster=LINKS)
    early = trial.progress._replace(switch_step=trial.progress.switch_step - 1)

    try:
        params = replay(trial.plan, trial.arrivals, early)
    except ProtocolError:
        return
    assert hashlib.sha256(params.tobytes()).hexdigest() != digest(trial)


@every_pair
def test_bytes_of_both_phases_and_of_the_strategy_switch_equal_the_plan(
    simulate: Callable[..., Any], before: str, after: str
) -> None:
    """The traffic of a strategy switch is known exactly before the run, as all other traffic is."""
    trial = simulate(switch(before, after, at_rule(fraction=0.4)), 3, cluster=LINKS)
    plan, commit = trial.plan, trial.value("coordinator", "switch_committed")
    (committed,) = trial.events("coordinator", "switch_committed")

    ends_ms = committed["time_ms"] - 2e-3
    steps_before = {
        f"worker-{rank}": sum(row["start_s"] * 1e3 < ends_ms for row in trial.steps(rank)) for rank in range(3)
    }
    computing = [node for node, share in zip(steps_before, plan.second_phase.worker_weights, strict=True) if share]
    steps_after = {
        node: len(trial.steps(rank)) - steps_before[node] for rank, node in enumerate(steps_before) if node in computing
    }
    for node in steps_before:
        moved = plan.second_phase.model_transfer_bytes[node] if commit["loaded"] else 0
        expected = sent_bytes(plan, node, steps_before) + sent_bytes(plan.second_phase, node, steps_after) + moved
        assert trial.value(node, "node_stop")["payload_bytes_sent"] == pytest.approx(expected, abs=0.01)
        if node not in plan.shard_owners:
            assert trial.value(node, "node_switch")["bytes_sent"] == moved


def sent_bytes(phase: Any, node: str, steps: dict[str, int]) -> float:
    """Return the payload bytes of a worker in one phase: for its own steps, and its replies if it is a server."""
    reply_bytes = phase.reply_bytes_per_step.get(node, 0)
    others = [count for name, count in steps.items() if name != node]
    own_bytes = (phase.bytes_per_step[node] - reply_bytes) * steps.get(node, 0)
    return own_bytes + reply_bytes * sum(others) / max(1, len(others))


@pytest.mark.parametrize(("before", "after"), OTHER_PAIRS)
def test_every_sample_is_in_an_update_or_logged_as_dropped(
    simulate: Callable[..., Any], before: str, after: str
) -> None:
    """Including gradients that wait at a server for others when a switch comes; dropped gradients are no progress."""
    trial = simulate(switch(before, after, at_rule(fraction=0.4)), 3, cluster=LINKS)

    (stop,) = trial.events("coordinator", "run_stop")
    budget, used = trial.plan.epochs * trial.plan.train_samples, stop["metadata"]["samples_count"]
    owner = trial.plan.shard_owners[0] if trial.plan.shard_owners else "worker-0"
    dropped = sum(row["samples"] for row in trial.rows(owner, "shard_drops"))
    assert budget <= used <= budget + trial.plan.batch
    assert sum(row["samples"] for rank in range(3) for row in trial.steps(rank)) == used + dropped
    assert trial.value("coordinator", "switch_committed")["step"] > 0


@pytest.mark.parametrize("policy", ["carry", "zero", "reset"])
def test_optimiser_state_after_a_switch_follows_its_policy(simulate: Callable[..., Any], policy: str) -> None:
    """Recomputed here: with one worker no gradient is stale, so the switch changes only the optimiser state."""
    trial = simulate(
        switch("ring", "asp", at_rule(step=5), optimiser_state=policy), 1, optimiser={"kind": "adam", "rate": 0.01}
    )
    plan, data = trial.plan, trial.plan.dataset.load(trial.plan.dtype)
    params = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    state = plan.optimiser.init_state(params)
    for step in range(plan.steps):
        if step == 5:
            state = plan.strategy.training_phases().switch.optimiser_state_after_switch(plan.optimiser, params, state)
        share = plan.data_order.batch_sample_indices(step)
        _, gradient = plan.model.loss_and_grad(data.task, params, data.train_x[share], data.train_y[share])
        params, state = plan.optimiser.update_params(params, gradient, state)

    assert trial.params.tobytes() == params.tobytes()
    assert state.update_count == plan.steps - (5 if policy == "reset" else 0)


@pytest.mark.parametrize(
    ("policy", "before", "after", "factor"),
    [
        ("keep_per_sample", "ring", "asp", 1 / 4),
        ("keep_per_sample", "asp", "ring", 4),
        ("keep_per_sample", "ring", "bsp", 1),
        ("keep_per_sample", "weighted", "ring", 1),
        ("keep_per_sample", "weighted", "asp", 1 / 4),
        ("keep", "ring", "asp", 1),
        (0.5, "ring", "asp", 0.5),
    ],
)
def test_learning_rate_after_a_switch_follows_its_policy(
    simulate: Callable[..., Any], policy: str | float, before: str, after: str, factor: float
) -> None:
    """Per sample: an update with one gradient of four uses a quarter of the rate, and back four times as much.

    Where weighting by staleness already reduced the rate to a quarter, the synchronous phase uses the whole rate.
    """
    plan = simulate(switch(before, after, at_rule(fraction=0.5), rate=policy), 4, batch=16).plan

    assert plan.second_phase.optimiser.rate == pytest.approx(factor * plan.optimiser.rate)


def test_plateau_rule_switches_once_and_logs_its_value_to_the_end(simulate: Callable[..., Any]) -> None:
    """The log shows why the rule fired, and what its value was later."""
    rule = {"kind": "plateau", "window": 2, "threshold": 0.5, "min_points": 2, "loss": "train"}
    trial = simulate(switch("ring", "asp", rule), 3, epochs=8)

    decisions = [(event["metadata"], event["value"]) for event in trial.events("coordinator", "switch_rule")]
    first = next(metadata["step"] for metadata, value in decisions if value["fires"])
    assert trial.value("coordinator", "switch_committed")["step"] == first
    assert len(decisions) >= 6
    assert all(value["fires"] == (value["value"] <= 0.5) for _, value in decisions if value["value"] is not None)


def test_plateau_rule_switches_an_asynchronous_run(simulate: Callable[..., Any]) -> None:
    """Asynchronous workers do not wait for an evaluation, so the coordinator has to call all of them."""
    rule = {"kind": "plateau", "window": 2, "threshold": 0.5, "min_points": 2, "loss": "train"}
    trial = simulate(switch("asp", "ring", rule), 3, epochs=8, cluster=LINKS)

    committed = trial.value("coordinator", "switch_committed")
    hashes = [event for rank in range(3) for event in trial.events(f"worker-{rank}", "node_hash")]
    by_step = groupby(sorted((event["metadata"]["step"], event["value"]) for event in hashes), key=lambda pair: pair[0])
    assert committed["loaded"]
    assert all(len({value for _, value in group}) == 1 for _, group in by_step)


@pytest.mark.parametrize(("before", "after"), [("asp", "ring"), ("ring", "asp")])
def test_switch_rule_is_logged_at_every_evaluation(simulate: Callable[..., Any], before: str, after: str) -> None:
    """Also at the last one, after all workers have left and the servers' parameters are evaluated."""
    rule = {"kind": "plateau", "force_at": 2, "window": 2, "threshold": 1e-9}
    trial = simulate(switch(before, after, rule), 3, cluster=LINKS, epochs=5)

    decisions, evaluations = (trial.events("coordinator", key) for key in ("switch_rule", "eval_metrics"))
    assert [event["value"]["loss"] for event in decisions] == [event["value"]["loss"] for event in evaluations]
    assert [event["metadata"]["step"] for event in decisions] == [event["metadata"]["step"] for event in evaluations]
    assert trial.value("coordinator", "switch_committed")


def test_switch_rule_on_training_loss_is_logged_for_the_last_epoch(simulate: Callable[..., Any]) -> None:
    """Fast asynchronous workers use up the budget, so slow ones never report their last epoch."""
    rule = {"kind": "plateau", "loss": "train", "window": 2, "threshold": 1e-9}
    trial = simulate(switch("asp", "ring", rule), 3, cluster=SLOW, epochs=5)

    train_losses = trial.events("coordinator", "train_loss")
    decisions = trial.events("coordinator", "switch_rule")
    assert len(train_losses) < len(decisions) == len(train_losses) + 1
    assert [event["metadata"]["epoch_num"] for event in decisions] == [*range(1, len(decisions) + 1)]


def test_losses_that_are_not_finite_abort_the_run_with_a_reason(simulate: Callable[..., Any]) -> None:
    """A diverged model never reaches a plateau, so the rule would wait forever."""
    trial = simulate(switch("ring", "asp", {"kind": "plateau"}), 2, epochs=40, optimiser={"kind": "sgd", "rate": 1e30})

    (stop,) = trial.events("coordinator", "run_stop")
    assert stop["metadata"]["status"] == "aborted"
    assert stop["metadata"]["reason"] == "training diverged: 3 losses were not finite"
    assert not trial.events("coordinator", "switch_committed")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ring", "asp"),
        ("asp", "ring"),
        ("asp", "bsp"),
        ("ring", "asp colocated"),
        ("asp colocated", "ring"),
        ("dssp", "ring"),
        ("gba on one server", "ring"),
    ],
)
def test_wrongly_loaded_model_aborts_the_switch_and_changes_nothing(
    simulate: Callable[..., Any], before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit all nodes still have their own state: the run equals one that never switches."""

    async def receive_wrong_model(transport: Any, source: str, step: int, into: Any) -> None:
        await receive_model_vectors(transport, source, step, into)
        into[0][0] += 1

    for module in ("services.worker.strategy_switch", "services.ps_shard.strategy_switch"):
        monkeypatch.setattr(f"{module}.receive_model_vectors", receive_wrong_model)

    trial = simulate(switch(before, after, at_rule(fraction=0.4)), 3, cluster=SLOW)

    assert "differs from the model that was sent" in trial.value("coordinator", "switch_aborted")["reason"]
    assert not trial.events("coordinator", "switch_committed")
    (stop,) = trial.events("coordinator", "run_stop")
    budget = trial.plan.epochs * trial.plan.train_samples
    assert budget <= stop["metadata"]["samples_count"] <= budget + trial.plan.batch
    if before == "ring":
        assert digest(trial) == digest(simulate(RING, 3, cluster=SLOW))


def test_different_replicas_abort_the_switch(simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch would hide the difference, since servers have only one model."""
    report_strategy_switch = CoordinatorRuntime.report_strategy_switch

    async def report_other_digest(runtime: CoordinatorRuntime, state: SwitchStageReport) -> Any:
        changed = (
            SwitchStageReport(state.node_name, state.stage, state.next_step, params_digests=("other",))
            if state.node_name == "worker-1"
            else state
        )
        return await report_strategy_switch(runtime, changed)

    monkeypatch.setattr(CoordinatorRuntime, "report_strategy_switch", report_other_digest)
    trial = simulate(switch("ring", "asp", at_rule(step=4)), 3)

    assert "replicas differ" in trial.value("coordinator", "switch_aborted")["reason"]


def test_node_that_never_reports_aborts_the_switch(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout is that of a step; then all nodes continue as before, and the log gives the reason."""

    async def sleep(runtime: CoordinatorRuntime) -> bool:
        while not runtime.strategy_switch.is_wait_cancelled:
            await runtime.clock.sleep_until(runtime.clock.now() + 1.0)
        return False

    monkeypatch.setattr(CoordinatorRuntime, "await_strategy_switch_start", sleep)
    trial = simulate(switch("ring", "asp", at_rule(step=4)), 3, timeouts={"step": "2s"})

    aborted = trial.value("coordinator", "switch_aborted")
    assert aborted["reason"] == "a node did not report its state within 2 s"
    assert aborted["seconds"] == pytest.approx(2)
    assert digest(trial) == digest(simulate(RING, 3))


@pytest.mark.parametrize(("sender", "before", "after"), [("worker", "ring", "asp"), ("ps_shard", "asp", "ring")])
def test_sender_that_is_blocked_aborts_the_switch_and_continues(
    simulate: Callable[..., Any], sender: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocked transfer never ends, and all other workers would wait for the next step of the sender."""

    async def send_forever(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(f"services.{sender}.strategy_switch.send_model_vectors", send_forever)
    trial = simulate(switch(before, after, at_rule(fraction=0.4)), 3, cluster=SLOW, timeouts={"step": "2s"})

    assert "within 2 s" in trial.value("coordinator", "switch_aborted")["reason"]
    (stop,) = trial.events("coordinator", "run_stop")
    budget = trial.plan.epochs * trial.plan.train_samples
    assert budget <= stop["metadata"]["samples_count"] <= budget + trial.plan.batch
    if before == "ring":
        assert digest(trial) == digest(simulate(RING, 3, cluster=SLOW))


def test_idle_server_that_is_cut_off_does_not_delay_the_ring(simulate: Callable[..., Any]) -> None:
    """No worker needs the server before the switch, and none needs it after the abort."""
    partition = {"kind": "partition", "at": {"step": 4}, "apart": ["server-0"], "lasts": "20s"}
    trial = simulate(
        switch("ring", "asp", at_rule(step=6)), 3, cluster=LINKS, events=[partition], timeouts={"step": "5s"}
    )

    assert "within 5 s" in trial.value("coordinator", "switch_aborted")["reason"]
    assert digest(trial) == digest(simulate(RING, 3, cluster=LINKS))


def test_switch_takes_the_time_of_its_bytes_and_less_than_three_steps(simulate: Callable[..., Any]) -> None:
    """Parameters and momentum pass the server's link once; the replicas share the sending."""
    work = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [64]}, "batch": 240}
    equal_links = {key: value for key, value in LINKS.items() if key != "groups"}
    asp_on_one_server = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
    strategy = {"kind": "strategy_switch", "before": RING, "after": asp_on_one_server, "when": at_rule(epoch=1)}
    trial = simulate(strategy, 4, cluster=equal_links, epochs=2, **work)

    switch_s = trial.value("coordinator", "switch_committed")["seconds"]

    assert switch_s == pytest.approx(2 * trial.plan.vector_bytes / to_goodput_bytes_per_s(1e6), rel=0.05)
    assert switch_s <= 3 * trial.plan.predicted.step_s


@pytest.mark.parametrize(("before", "after"), [("ring", "asp"), ("bsp", "asp"), ("asp", "bsp")])
@pytest.mark.parametrize("fraction", [0.25, 0.6])
def test_run_time_is_the_sum_of_its_phases_and_the_switch(
    simulate: Callable[..., Any], before: str, after: str, fraction: float
) -> None:
    """T = p·T_before + (1 - p)·T_after + T_switch, where p is the share of samples before the switch."""
    work = {"cluster": LINKS, "epochs": 12, "batch": 24}
    first, second = simulate(STRATEGIES[before], 4, **work), simulate(STRATEGIES[after], 4, **work)
    trial = simulate(switch(before, after, at_rule(fraction=fraction)), 4, **work)

    committed = trial.value("coordinator", "switch_committed")
    p = committed["samples"] / (trial.plan.epochs * trial.plan.train_samples)
    expected_s = p * run_seconds(first) + (1 - p) * run_seconds(second) + committed["seconds"]
    assert run_seconds(trial) == pytest.approx(expected_s, rel=0.03)


def test_sync_switch_equals_a_switch_from_bsp_to_asp(simulate: Callable[..., Any]) -> None:
    """The short form and the equivalent strategy_switch train the same model at the same times."""
    long_form = simulate(switch("bsp", "asp", at_rule(fraction=0.25)), 3, cluster=LINKS)

    short_form = simulate({"kind": "sync_switch", "servers": 2, "fraction": 0.25}, 3, cluster=LINKS)

    assert digest(short_form) == digest(long_form)
    assert run_seconds(short_form) == run_seconds(long_form)


def test_switch_between_two_rings_needs_no_server(simulate: Callable[..., Any]) -> None:
    """Nothing is sent between replicas; the compression may still change."""
    strategy = {
        "kind": "strategy_switch",
        "before": RING | {"compress": {"kind": "fp16"}},
        "after": RING,
        "when": at_rule(fraction=0.5),
    }
    trial = simulate(strategy, 3)

    assert not trial.value("coordinator", "switch_committed")["loaded"]
    assert trial.plan.servers == 0


@pytest.mark.slow
def test_run_of_64_workers_is_reproducible_bitwise(simulate: Callable[..., Any]) -> None:
    """Virtual time is deterministic, also where many workers reach a strategy switch at once."""
    work = {"batch": 64, "epochs": 10, "cluster": SLOW}
    first, second = (simulate(switch("ring", "asp", at_rule(fraction=0.5)), 64, **work) for _ in range(2))

    assert digest(first) == digest(second)
    assert first.lines["coordinator"] == second.lines["coordinator"]


PROMOTED = ["promoted", "two promoted", "asp promoted"]


@pytest.mark.parametrize("after", PROMOTED)
@pytest.mark.parametrize(("batch", "step"), [(12, 8), (13, 9), (12, 7)])
def test_every_sample_of_an_epoch_is_used_once_when_workers_become_servers(
    simulate: Callable[..., Any], after: str, batch: int, step: int
) -> None:
    """The remaining workers share the batches of the promoted ones, in the middle of an epoch or at its end."""
    trial = simulate(switch("ring", after, at_rule(step=step)), 4, batch=batch)  # equal speeds, equal numbers of steps

    last = (
        3 if trial.plan.second_phase.is_synchronous else 2
    )  # near the end of the last epoch, fast workers already start the next one
    uses = Counter(
        (step // trial.plan.steps_per_epoch, int(sample))
        for rank in range(4)
        for step in (row["step"] for row in trial.steps(rank))
        for sample in trial.plan.data_order.select_sample_indices(
            step, rank, (1,) * 4 if step < switch_step(trial) else trial.plan.second_phase.worker_weights
        )
    )
    uses_in_full_epochs = {sample: count for sample, count in uses.items() if sample[0] < last}
    assert uses_in_full_epochs == dict.fromkeys(product(range(last), range(trial.plan.train_samples)), 1)


@pytest.mark.parametrize("after", PROMOTED)
def test_promoted_workers_compute_until_the_switch_and_then_are_servers(
    simulate: Callable[..., Any], after: str
) -> None:
    """The last ranks together have the whole model; no worker pushes to itself, and none is left out."""
    trial = simulate(switch("ring", after, at_rule(step=8)), 4, cluster=LINKS)
    promoted = [
        node for node, share in zip(worker_names(4), trial.plan.second_phase.worker_weights, strict=True) if not share
    ]

    assert list(trial.plan.shard_owners) == promoted == worker_names(4)[-len(promoted) :]
    for rank, name in enumerate(worker_names(4)):
        assert (max(row["step"] for row in trial.steps(rank)) < 8) == (name in promoted)
    for owner in promoted:
        pushes = [(row["worker"], row["push_step"]) for row in trial.rows(owner, "shard_updates")]
        assert {worker for worker, _ in pushes} == set(range(4 - len(promoted)))
        assert len(set(pushes)) == len(pushes)
        assert min(step for _, step in pushes) == 8


def test_promoted_servers_start_from_their_own_replica_without_a_transfer(simulate: Callable[..., Any]) -> None:
    """Parameters and momentum are already in every replica."""
    trial = simulate(switch("ring", "two promoted", at_rule(step=8)), 4, cluster=LINKS)

    assert set(trial.plan.second_phase.model_transfer_bytes.values()) == {0}
    for rank in range(4):
        assert trial.value(f"worker-{rank}", "node_switch")["bytes_sent"] == 0
    assert trial.value("coordinator", "switch_committed")["loaded"]


@every_optimiser
def test_synchronous_promoted_server_trains_the_same_model_as_the_ring(
    simulate: Callable[..., Any], optimiser: dict[str, Any]
) -> None:
    """The same batches are divided into fewer shares: the model is the same except for rounding."""
    expected = simulate(RING, 4, optimiser=optimiser, precision="fp64")

    trial = simulate(switch("ring", "promoted", at_rule(step=8)), 4, optimiser=optimiser, precision="fp64")

    assert [event["metadata"]["epoch_num"] for event in trial.events("coordinator", "train_loss")] == [1, 2, 3]
    np.testing.assert_allclose(trial.epoch_params[-1], expected.epoch_params[-1], rtol=1e-9, atol=1e-12)


def test_learning_rate_after_a_promotion_is_that_of_a_larger_share(simulate: Callable[..., Any]) -> None:
    """One of four workers becomes a server: a gradient is of 1/3 of a batch, and its update uses 1/3 of the rate."""
    plan = simulate(switch("ring", "asp promoted", at_rule(step=8)), 4).plan

    assert plan.second_phase.optimiser.rate == pytest.approx(plan.optimiser.rate / 3)


@pytest.mark.parametrize("after", ["promoted", "asp promoted"])
def test_step_time_after_a_promotion_equals_the_closed_form(simulate: Callable[..., Any], after: str) -> None:
    """Fewer workers compute larger shares; a synchronous worker with an early reply computes during later replies."""
    equal_links = {key: value for key, value in LINKS.items() if key != "groups"}
    trial = simulate(switch("ring", after, at_rule(step=3)), 4, cluster=equal_links, batch=40, epochs=20)

    steps_s = [row["step_s"] for rank in range(3) for row in trial.steps(rank) if 5 <= row["step"] < 14]

    predicted_s = trial.plan.second_phase.predicted.mean_step_s
    early_s = 2 * trial.plan.vector_bytes / to_goodput_bytes_per_s(1e6) if after == "promoted" else 0.0
    assert predicted_s - early_s - 1e-5 <= np.mean(steps_s) <= 1.05 * predicted_s


def worker_names(workers: int) -> list[str]:
    return [f"worker-{rank}" for rank in range(workers)]


def switch_step(trial: Any) -> int:
    return int(trial.value("coordinator", "switch_committed")["step"])
