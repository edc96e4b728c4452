"""A small trial in virtual time with declared losses of nodes, and what its logs say about the recovery."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from compose.runs.trials.continued_trials import continue_training
from services.cluster.addresses import DummyAddresses
from services.node.simulate import simulate_trial
from services.plan import COORDINATOR, TrainingPlan, make_plan
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.scenario import Scenario

WORKLOAD = {
    "dataset": {"kind": "synthetic_regression", "samples": 100, "features": 4, "outputs": 2, "hidden": 8},
    "model": {"kind": "mlp", "hidden": [5], "activation": "tanh"},
    "optimiser": {"kind": "momentum", "rate": 0.02},
    "batch": 16,
    "epochs": 9,
}
WORKER = {"throughput": "200/s", "uplink": "10mbit", "downlink": "10mbit", "delay": "1ms"}


@dataclass(frozen=True)
class RecoveringTrial:
    """A simulated trial of 45 steps on four workers, with the logs of its nodes."""

    plan: TrainingPlan
    lines: dict[str, list[str]]  # by node

    @classmethod
    def run(
        cls,
        strategy: Mapping[str, Any],
        recovery: Mapping[str, Any],
        events: Sequence[Mapping[str, Any]],
        folder: Path,
        workers: int = 4,
        transport: str = "grpc",
        groups: Sequence[Mapping[str, Any]] = (),
        **workload: Any,
    ) -> Self:
        """Simulate the trial; `folder` receives its plan and its checkpoints, and may have some of an earlier trial."""
        document = {
            "name": "recovery",
            "workload": {**WORKLOAD, **workload},
            "cluster": {"workers": workers, "worker": WORKER, "groups": list(groups)},
            "strategies": {"it": dict(strategy)},
            "events": list(events),
            "recovery": dict(recovery),
            "transport": transport,
            "baseline": False,
        }
        (trial,) = Scenario.decode(document).trials()
        plan = make_plan(trial, "recovery", "simulated", DummyAddresses())
        plan = continue_training(plan, folder)
        assert isinstance(plan, TrainingPlan)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(plan.model_dump_json())
        lines: dict[str, list[str]] = defaultdict(list)
        simulate_trial(plan, lambda node: lines[node].append, folder)
        return cls(plan, lines)

    def events(self, node: str, key: str) -> list[dict[str, Any]]:
        """Return the events with a key in the log of a node."""
        return [event for event in self.all_events(node) if event["key"] == key]

    def all_events(self, node: str) -> list[dict[str, Any]]:
        """Return all events in the log of a node."""
        return [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in self.lines[node]]

    @property
    def _stop(self) -> dict[str, Any]:
        (stop,) = self.events(COORDINATOR, "run_stop")
        return stop

    @property
    def stop_reason(self) -> str:
        return str(self._stop["metadata"]["reason"])

    @property
    def samples(self) -> int:
        return int(self._stop["metadata"]["samples_count"])

    @property
    def budget(self) -> int:
        return self.plan.sample_budget

    @property
    def seconds(self) -> float:
        """Virtual seconds of the run."""
        (start,) = self.events(COORDINATOR, "run_start")
        return float(self._stop["time_ms"] - start["time_ms"]) / 1e3

    @property
    def params_sha256(self) -> str:
        (event,) = self.events(COORDINATOR, "params_sha256")
        return str(event["value"])

    @property
    def final_loss(self) -> float:
        return float(self.events(COORDINATOR, "eval_metrics")[-1]["value"]["loss"])

    @property
    def lost_nodes(self) -> list[str]:
        return [event["value"]["node"] for event in self.events(COORDINATOR, "node_lost")]

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """Membership epochs after the first one."""
        return [event["value"] for event in self.events(COORDINATOR, "membership_epoch")]

    @property
    def first_logged_step(self) -> int:
        """First step in the log of worker 0."""
        return int(self.events("worker-0", "node_steps")[0]["value"]["rows"][0][0])

    @property
    def has_equal_replicas_at_evaluations(self) -> bool:
        """Whether workers that have reported after the same number of steps had the same parameters."""
        digests: dict[int, set[str]] = defaultdict(set)
        for worker in self.plan.node_plans_of_role("worker"):
            for event in self.events(worker.name, "node_hash"):
                digests[event["metadata"]["step"]].add(event["value"])
        # After the loss of a worker, the sum is rounded in another order: replicas of two epochs may differ.
        return all(len(values) <= len(self.epochs) + 1 for values in digests.values())
