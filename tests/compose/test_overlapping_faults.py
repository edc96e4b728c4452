"""Faults of the same node that overlap are applied so that the engine can go on with the trial."""

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
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


def test_a_node_that_is_killed_while_it_is_stopped_is_started_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the stop, between the kill and the restart, does not bring the node back."""
    stop = {"kind": "stop", "of": ["worker-1"], "at": {"time": "1s"}, "lasts": "2s"}
    kill = {"kind": "kill", "of": ["worker-1"], "at": {"time": "2500ms"}}
    processes = RecordedProcesses()
    injector = NodeFaultInjector(plan_with_rejoin(stop, kill), processes, tmp_path / "events.jsonl")
    start_s = time.monotonic()
    injector.handle_log_event({"key": "run_start", "value": None, "time_ms": time.time() * 1e3})

    for tenth in range(60):
        now_s = start_s + tenth / 10
        monkeypatch.setattr(node_faults, "time", SimpleNamespace(monotonic=partial(float, now_s)))
        for name in processes.ended_nodes - injector.lost_nodes:
            assert injector.handle_unexpected_end(name, EXIT_KILLED)
        injector.apply_due_faults(processes.ended_nodes)

    assert processes.actions == ["freeze", "kill", "thaw", "start"]
