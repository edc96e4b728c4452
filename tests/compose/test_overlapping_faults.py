"""Faults of the same node that overlap are applied so that the engine can go on with the trial."""

import json
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from compose.runs.trials import node_faults
from compose.runs.trials.node_faults import EXIT_KILLED, NodeFaultInjector
from compose.runs.trials.node_runner import NodeProcessControl
from services.cluster.addresses import DummyAddresses
from services.cluster.node_faults import NodeAction
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario

pytestmark = pytest.mark.without_nodes

KILL_S = 0.05  # that the kill of a node takes


def plan_with_rejoin(*events: dict[str, Any]) -> Plan:
    """Return the plan of a trial whose lost workers are started again after 1 s."""
    document = {
        "name": "faults",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 1,
        },
        "cluster": {"workers": 2, "worker": {"throughput": "80/s"}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "recovery": {"on_failure": "rejoin", "restart_delay": "1s"},
        "baseline": False,
        "events": list(events),
    }
    (trial,) = Scenario.decode(document).trials()
    return make_plan(trial, "test", "simulated", DummyAddresses())


@dataclass
class RecordedProcesses(NodeProcessControl):
    """Processes of nodes that only record the actions, and know which nodes have ended."""

    actions: list[str] = field(default_factory=list)
    ended_nodes: set[str] = field(default_factory=set)

    def apply_action(self, action: NodeAction, node_name: str) -> None:
        self.actions.append(action)
        if action == "kill":
            self.ended_nodes.add(node_name)
        elif action == "start":
            self.ended_nodes.discard(node_name)

    def describe_mechanism(self, action: NodeAction) -> str:
        return action


def apply_faults(events: list[dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Apply faults for 6 s of a clock that the test sets, and return the actions on processes in their order."""
    processes = RecordedProcesses()
    injector = NodeFaultInjector(plan_with_rejoin(*events), processes, folder / "events.jsonl")
    start_s = time.monotonic()
    injector.handle_log_event({"key": "run_start", "value": None, "time_ms": time.time() * 1e3})

    for tenth in range(60):
        monkeypatch.setattr(node_faults, "time", SimpleNamespace(monotonic=partial(float, start_s + tenth / 10)))
        for name in processes.ended_nodes - injector.lost_nodes:
            assert injector.handle_unexpected_end(name, EXIT_KILLED)
        injector.apply_due_faults(processes.ended_nodes.copy())
    return processes.actions


def test_a_node_that_is_killed_while_it_is_stopped_is_started_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the stop, between the kill and the restart, does not bring the node back."""
    stop = {"kind": "stop", "of": ["worker-1"], "at": {"time": "1s"}, "lasts": "2s"}
    kill = {"kind": "kill", "of": ["worker-1"], "at": {"time": "2500ms"}}

    assert apply_faults([stop, kill], tmp_path, monkeypatch) == ["freeze", "kill", "thaw", "start"]


def test_a_node_that_two_faults_end_is_started_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit codes of nodes are read before the faults are applied: they do not show what an earlier fault ended."""
    kill = {"kind": "kill", "of": ["worker-1"], "at": {"time": "1s"}}

    assert apply_faults([kill, kill], tmp_path, monkeypatch) == ["kill", "start"]


class WaitingProcesses(RecordedProcesses):
    """Processes whose kill returns only when all nodes of the fault are being killed."""

    barrier = Barrier(2, timeout=5)

    def apply_action(self, action: NodeAction, node_name: str) -> None:
        if action == "kill":
            self.barrier.wait()
            time.sleep(KILL_S)
        super().apply_action(action, node_name)


def test_a_fault_begins_on_all_its_nodes_at_the_same_time(tmp_path: Path) -> None:
    """One after the other, a power failure of many nodes would take seconds. The record has the duration."""
    kill = {"kind": "kill", "of": ["workers"], "at": {"time": "1us"}}
    processes, record = WaitingProcesses(), tmp_path / "events.jsonl"
    injector = NodeFaultInjector(plan_with_rejoin(kill), processes, record)
    injector.handle_log_event({"key": "run_start", "value": None, "time_ms": time.time() * 1e3})

    time.sleep(0.001)
    injector.apply_due_faults(set())

    assert processes.ended_nodes == {"worker-0", "worker-1"}
    (begin,) = (json.loads(line) for line in record.read_text().splitlines())
    assert begin["seconds"] >= KILL_S
    delay_s = begin["applied_s"] - begin["planned_s"]
    assert delay_s == pytest.approx(begin["lateness_s"] + begin["seconds"], abs=1e-5)  # the kill is not part of it
