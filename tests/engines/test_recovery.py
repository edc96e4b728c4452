"""Trials in processes and containers that go on after a real kill."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fault_runs import run_faults

from compose.engines.local import NodeProcesses
from compose.runs.run import FinishedRun
from services.plan.trial_outcome import LinkShapingRecord
from services.runtime.run_log import LOG_LINE_PREFIX

KILL = {"kind": "kill", "of": ["worker-1"], "at": {"step": 12}}
RING, SERVER, ASP = (
    {"kind": "all_reduce"},
    {"kind": "parameter_server"},
    {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
)
# Of 40 steps.
SWITCH = {"kind": "strategy_switch", "before": RING, "after": ASP, "when": {"kind": "at", "step": 15}}
SAMPLES = 320  # of the budget, all used once
QUICK = {"heartbeat_timeout": "1s", "restart_delay": "200ms"}


def coordinator_events(run: FinishedRun, key: str) -> dict[str, list[dict[str, Any]]]:
    """Return the events with a key in the coordinator's logs, by the label of the strategy."""
    found: dict[str, list[dict[str, Any]]] = {}
    for log in run.folder.glob("trials/*/logs/coordinator.log"):
        lines = (line for line in log.read_text().splitlines() if line.startswith(LOG_LINE_PREFIX))
        events = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines)
        found[log.parents[1].name.split("-")[1]] = [event for event in events if event["key"] == key]
    return found


def assert_budget_used(run: FinishedRun) -> None:
    assert {outcome.status for outcome in run.statuses} == {"success"}, run.statuses
    for stops in coordinator_events(run, "run_stop").values():
        assert stops[0]["metadata"]["samples_count"] == SAMPLES


def test_training_continues_without_a_killed_worker(tmp_path: Path, engine: str) -> None:
    recovery = {**QUICK, "on_failure": "continue"}

    run = run_faults(tmp_path, engine, [KILL], {"ring": RING, "ps": SERVER, "asp": ASP}, recovery=recovery, attempts=1)

    assert_budget_used(run)
    for epochs in coordinator_events(run, "membership_epoch").values():
        assert [epoch["value"]["workers"] for epoch in epochs] == [["worker-0"]]


@pytest.mark.parametrize("step", [12, 25])
def test_training_continues_without_a_worker_that_is_killed_before_or_after_a_switch(
    tmp_path: Path, engine: str, step: int
) -> None:
    recovery = {**QUICK, "on_failure": "continue"}

    kill = {**KILL, "at": {"step": step}}
    run = run_faults(tmp_path, engine, [kill], {"switch": SWITCH}, recovery=recovery, attempts=1)

    assert {outcome.status for outcome in run.statuses} == {"success"}, run.statuses
    (stops,) = coordinator_events(run, "run_stop").values()
    assert SAMPLES <= stops[0]["metadata"]["samples_count"] <= SAMPLES + 8  # a batch
    (commits,), (epochs,) = (coordinator_events(run, key).values() for key in ("switch_committed", "membership_epoch"))
    assert [commit["metadata"]["step"] for commit in commits] == [15]
    assert [epoch["value"]["workers"] for epoch in epochs] == [["worker-0"]]


def test_a_killed_worker_joins_again(tmp_path: Path, engine: str) -> None:
    """The engine starts it anew, and it gets the state of the other worker."""
    recovery = {**QUICK, "on_failure": "rejoin"}

    run = run_faults(tmp_path, engine, [KILL], {"ring": RING}, recovery=recovery, attempts=1)

    assert_budget_used(run)
    (epochs,) = coordinator_events(run, "membership_epoch").values()
    assert epochs[-1]["value"]["workers"] == ["worker-0", "worker-1"]
    assert epochs[-1]["value"]["joined"] == ["worker-1"]


def test_a_worker_that_is_started_again_too_late_does_not_fail_the_trial(tmp_path: Path) -> None:
    """The others have used up the budget when it asks to join."""
    recovery = {**QUICK, "on_failure": "rejoin", "restart_delay": "3500ms"}

    run = run_faults(tmp_path, "local", [KILL], {"ring": RING}, recovery=recovery, attempts=1)

    assert_budget_used(run)
    (epochs,) = coordinator_events(run, "membership_epoch").values()
    assert [epoch["value"]["workers"] for epoch in epochs] == [["worker-0"]]


def test_a_worker_that_has_joined_again_is_killed_again(tmp_path: Path, engine: str) -> None:
    """Each declared kill ends a process, not only the first one of a node."""
    recovery = {**QUICK, "on_failure": "rejoin"}
    kills = [{**KILL, "at": {"time": time}} for time in ("600ms", "8s")]

    run = run_faults(
        tmp_path,
        engine,
        kills,
        {"ring": RING},
        recovery=recovery,
        attempts=1,
        cluster={"workers": 2, "worker": {"throughput": "16/s"}},
    )

    assert_budget_used(run)
    (epochs,) = coordinator_events(run, "membership_epoch").values()
    causes = [epoch["value"]["cause"] for epoch in epochs]
    assert causes.count("worker-1 joined again") == 2


def test_two_neighbours_that_are_killed_shortly_after_each_other_join_again(tmp_path: Path) -> None:
    """The first one to join closes its unused stream to the other one, which must not count as a failure."""
    recovery = {**QUICK, "on_failure": "rejoin"}
    kills = [{**KILL, "of": [f"worker-{rank}"], "at": {"time": time}} for rank, time in ((1, "1s"), (2, "1.1s"))]

    run = run_faults(
        tmp_path,
        "local",
        kills,
        {"ring": RING},
        recovery=recovery,
        attempts=1,
        cluster={"workers": 4, "worker": {"throughput": "16/s"}},
    )

    assert_budget_used(run)
    (epochs,) = coordinator_events(run, "membership_epoch").values()
    assert epochs[-1]["value"]["workers"] == ["worker-0", "worker-1", "worker-2", "worker-3"]


@pytest.mark.parametrize("seed", [1, 2])
def test_restored_training_has_the_bits_of_undisturbed_training(tmp_path: Path, engine: str, seed: int) -> None:
    """A random worker is killed at a random step."""
    recovery = {**QUICK, "on_failure": "restore", "checkpoint": {"steps": 5}}
    strategies, random = {"ring": RING, "ps": SERVER}, Random(seed)
    kill = {"kind": "kill", "of": [f"worker-{random.randrange(2)}"], "at": {"step": random.randrange(1, 38)}}

    run = run_faults(tmp_path, engine, [kill], strategies, recovery=recovery, attempts=1)
    undisturbed = run_faults(tmp_path, "simulated", [], strategies, recovery=recovery)

    assert_budget_used(run)
    assert all(coordinator_events(run, "membership_epoch").values())
    digests, expected = (
        {label: events[0]["value"] for label, events in coordinator_events(each, "params_sha256").items()}
        for each in (run, undisturbed)
    )
    assert digests == expected


def test_a_worker_that_is_frozen_too_long_is_evicted(tmp_path: Path, engine: str) -> None:
    """It continues later, and must not disturb the training that has gone on without it."""
    freeze = {"kind": "stop", "of": ["worker-1"], "at": {"step": 12}, "lasts": "2500ms"}
    recovery = {**QUICK, "on_failure": "continue"}

    run = run_faults(tmp_path, engine, [freeze], {"ring": RING}, recovery=recovery, attempts=1)

    assert_budget_used(run)
    (losses,) = coordinator_events(run, "node_lost").values()
    assert [loss["value"]["node"] for loss in losses] == ["worker-1"]


@pytest.mark.parametrize("transport", ["tcp", "grpc"])
def test_training_ends_while_an_evicted_worker_is_frozen(tmp_path: Path, transport: str) -> None:
    """The others don't wait for its connections, which are open as long as it is frozen."""
    freeze = {"kind": "stop", "of": ["worker-1"], "at": {"step": 12}, "lasts": "300s"}
    recovery = {**QUICK, "on_failure": "continue"}

    run = run_faults(tmp_path, "local", [freeze], {"ring": RING}, recovery=recovery, attempts=1, transport=transport)

    assert_budget_used(run)


@pytest.mark.parametrize("on_failure", ["continue", "restore"])
def test_a_node_that_is_killed_before_training_ends_its_trial_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_failure: str
) -> None:
    """All nodes have joined and are connected with it. A restarted node would not be, and its peers would wait."""

    def kill_worker(nodes: NodeProcesses) -> dict[str, LinkShapingRecord]:
        nodes.process_control().apply_action("kill", "worker-1")
        return {}

    monkeypatch.setattr(NodeProcesses, "probe_links", kill_worker)
    recovery = {**QUICK, "on_failure": on_failure, "checkpoint": {"steps": 5}}

    run = run_faults(tmp_path, "local", [], {"ring": RING}, recovery=recovery, attempts=1)

    (outcome,) = run.statuses
    assert (outcome.status, outcome.reason) == ("failed", "worker-1 ended with exit code -9: killed by SIGKILL")
    assert outcome.timings_s["gate"] < 30
