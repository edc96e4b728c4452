"""Declared faults of nodes on engines that run nodes as processes or containers."""

import json
from pathlib import Path
from typing import Any

import pytest
from fault_runs import run_faults

from compose.engines.containers.containers import NodeContainers
from compose.engines.local import RUN_ENV_VARIABLE, NodeProcesses
from compose.runs.run import FinishedRun
from compose.runs.trials.log_tail import LogTail
from compose.runs.trials.node_runner import LinkProbeFailed
from services.plan.trial_outcome import LinkShapingRecord

Document = dict[str, Any]

RING, SERVER = {"kind": "all_reduce"}, {"kind": "parameter_server"}


def applied_faults(run: FinishedRun) -> list[Document]:
    """Return the records of the faults that the engine applied in the run's only trial with faults."""
    (record,) = run.folder.glob("trials/*/events.jsonl")
    return [json.loads(line) for line in record.read_text().splitlines()]


def processes_of(run: FinishedRun) -> list[str]:
    """Return the ids of the processes of this host that belong to a run."""
    mark = f"{RUN_ENV_VARIABLE}={run.folder.name}".encode()
    return [
        environment.parent.name
        for environment in Path("/proc").glob("[0-9]*/environ")
        if mark in _read_environment(environment)
    ]


def _read_environment(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.mark.parametrize("kind", [{"kind": "kill"}, {"kind": "restart", "after": "1s"}])
def test_killed_server_ends_its_trial_only_and_is_named(tmp_path: Path, engine: str, kind: Document) -> None:
    """The fault is no disturbance: its trial is not repeated, and the trial without servers succeeds."""
    fault = {**kind, "of": ["server-0"], "at": {"step": 10}}

    run = run_faults(tmp_path, engine, [fault], {"ring": RING, "ps": SERVER}, attempts=3)
    outcomes = {outcome.trial.split("-")[1]: outcome for outcome in run.statuses}

    loss = "was killed and away at step 10 for 1s" if kind["kind"] == "restart" else "was killed at step 10"
    assert (outcomes["ring"].status, outcomes["ring"].reason) == ("success", "")
    assert outcomes["ps"].reason == f"server-0 {loss}, as declared in events[0]"
    assert (outcomes["ps"].status, outcomes["ps"].disturbance) == ("failed", "")
    assert outcomes["ps"].exit_codes["server-0"] in (-9, 137)
    assert not (run.folder / "attempts").exists()
    (record,) = applied_faults(run)
    assert (record["phase"], record["nodes"], record["by"]) == (
        "begin",
        ["server-0"],
        "SIGKILL" if engine == "local" else "docker kill",
    )
    assert 0.5 <= record["planned_s"] <= record["applied_s"] < 5
    assert processes_of(run) == []


@pytest.mark.parametrize("node", ["worker-1", "coordinator"])
def test_kill_at_a_time_names_the_time(tmp_path: Path, engine: str, node: str) -> None:
    """The killed node is the reason, although all other nodes report broken connections."""
    fault = {"kind": "kill", "of": [node], "at": {"time": "700ms"}}

    run = run_faults(tmp_path, engine, [fault], {"ring": RING})

    assert [(outcome.status, outcome.reason) for outcome in run.statuses] == [
        ("failed", f"{node} was killed at 0.7 s, as declared in events[0]")
    ]
    (record,) = applied_faults(run)
    assert record["planned_s"] == 0.7
    assert processes_of(run) == []


def test_node_out_of_memory_is_named(tmp_path: Path, engine: str) -> None:
    """The kernel ends a node in a container; a process of this host has no limit, so its end is emulated."""
    oom = {"kind": "oom", "of": ["worker-1"], "at": {"step": 10}}

    run = run_faults(tmp_path, engine, [oom], {"ring": RING})

    (outcome,) = run.statuses
    assert outcome.reason == "worker-1 ran out of memory at step 10, as declared in events[0]"
    assert outcome.exit_codes["worker-1"] in (-9, 137)
    (record,) = applied_faults(run)
    assert record["by"] == (
        "SIGKILL, as an emulated lack of memory" if engine == "local" else "memory limit of the container"
    )
    assert "failed" not in record


def test_frozen_nodes_continue_and_the_trial_succeeds(tmp_path: Path, engine: str) -> None:
    """The stop is shorter than all timeouts. The worker's emulated compute takes so much longer, and is not late."""
    events = [
        {"kind": "stop", "of": ["worker-1"], "at": {"time": "625ms"}, "lasts": "1s"},
        {"kind": "stop", "of": ["server-0", "coordinator"], "at": {"step": 25}, "lasts": "500ms"},
    ]

    run = run_faults(tmp_path, engine, events, {"ps": SERVER})

    (outcome,) = run.statuses
    assert (outcome.status, outcome.reason) == ("success", "")
    assert set(outcome.exit_codes.values()) == {0}
    records = applied_faults(run)
    assert [(record["number"], record["phase"]) for record in records] == [
        (0, "begin"),
        (0, "end"),
        (1, "begin"),
        (1, "end"),
    ]
    assert all("failed" not in record for record in records)


def test_stop_beyond_the_timeout_is_named_beside_the_error_of_its_peer(tmp_path: Path, engine: str) -> None:
    """The peer knows only that a message is late; the reader must learn that the scenario declares the reason."""
    stop = {"kind": "stop", "of": ["worker-1"], "at": {"step": 5}, "lasts": "60s"}

    run = run_faults(tmp_path, engine, [stop], {"ring": RING}, timeouts={"step": "3s"})

    (outcome,) = run.statuses
    assert outcome.status == "failed"
    assert outcome.reason.startswith("worker-0 ended with exit code 4")
    assert outcome.reason.endswith("; worker-1 was frozen at step 5 for 60s, as declared in events[0]")
    assert processes_of(run) == []


def test_failures_of_a_trace_occur_at_their_times(tmp_path: Path) -> None:
    """The path is relative to the scenario file; plan and log contain the failures of the event's nodes only."""
    (tmp_path / "failures.csv").write_text("time,node,kind\n300ms,worker-0,stop\n1,worker-1,stop\n0.5,worker-1,kill\n")
    law = {"kind": "trace", "file": "failures.csv"}
    stop = {"kind": "stop", "of": ["worker-0", "worker-1"], "at": {"law": law}, "lasts": "200ms"}

    run = run_faults(tmp_path, "simulated", [stop], {"ring": RING})

    (outcome,) = run.statuses
    assert (outcome.status, outcome.reason) == ("success", "")
    log = LogTail(run.folder / "trials" / outcome.trial / "logs" / "coordinator.log")
    applied = [event["value"] for event in log.read_new_events() if event["key"] == "event_applied"]
    assert [(event["phase"], event["applied_s"], event["nodes"]) for event in applied] == [
        ("begin", 0.3, ["worker-0"]),
        ("end", 0.5, ["worker-0"]),
        ("begin", 1.0, ["worker-1"]),
        ("end", 1.2, ["worker-1"]),
    ]


def test_restarted_process_joins_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of the first process is kept: the new one appends to it."""
    shape_links = NodeProcesses.shape_links

    def restart_and_shape_links(nodes: NodeProcesses) -> dict[str, LinkShapingRecord]:
        for action in ("kill", "start"):
            nodes.process_control().apply_action(action, "worker-1")
        return shape_links(nodes)

    monkeypatch.setattr(NodeProcesses, "shape_links", restart_and_shape_links)

    run = run_faults(tmp_path, "local", [], {"ring": RING})

    (outcome,) = run.statuses
    assert (outcome.status, outcome.reason) == ("success", "")
    assert outcome.exit_codes["worker-1"] == 0
    assert processes_of(run) == []


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
def test_restarted_container_has_its_shaped_link_before_it_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that is started again has a new network interface; the probe before the training measures it."""
    shape_links = NodeContainers.shape_links

    def shape_links_and_restart(nodes: NodeContainers) -> dict[str, LinkShapingRecord]:
        shape_links(nodes)
        for action in ("kill", "start"):
            nodes.process_control().apply_action(action, "worker-1")
        return dict(nodes.links.records)

    monkeypatch.setattr(NodeContainers, "shape_links", shape_links_and_restart)
    shaped = {"workers": 2, "worker": {"throughput": "80/s", "uplink": "20mbit", "downlink": "20mbit", "delay": "5ms"}}

    run = run_faults(tmp_path, "docker", [], {"ring": RING}, cluster=shaped)

    (outcome,) = run.statuses
    if outcome.disturbance:
        raise LinkProbeFailed(outcome.disturbance)
    assert (outcome.status, outcome.reason) == ("success", "")
    link = outcome.shaping["worker-1"]
    assert link.read_back_uplink_bps == link.read_back_downlink_bps == 20e6
    assert link.achieved_uplink_bps == pytest.approx(20e6, rel=0.1)
    assert link.changed_meanwhile == ()
    assert link.unread == ""


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
def test_full_disk_ends_the_trial_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the coordinator's log, the engine would wait for the end of the run until its timeout."""
    log_path = NodeContainers._log_path

    def full_until_the_end(nodes: NodeContainers, node_name: str) -> Path:
        is_running = node_name == "coordinator" and not nodes._is_stopping
        return Path("/dev/full") if is_running else log_path(nodes, node_name)

    monkeypatch.setattr(NodeContainers, "_log_path", full_until_the_end)

    run = run_faults(tmp_path, "docker", [], {"ring": RING})

    (outcome,) = run.statuses
    assert (outcome.status, outcome.disturbance) == ("failed", "")
    assert outcome.reason == "/dev/full: the log can't be written: No space left on device"
    assert "init_start" in (run.folder / "trials" / outcome.trial / "logs" / "coordinator.log").read_text()
