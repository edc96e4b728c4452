"""Whole trials in virtual time, with access to their logs."""

import dataclasses
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from services.cluster.addresses import DummyAddresses
from services.node.simulate import simulate_trial
from services.plan import COORDINATOR, Plan, make_plan
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.scenario import Scenario
from services.strategies import Strategy, SyncSwitch
from services.strategies.switching.rules import AtStepRule


@dataclass
class SimulatedTrial:
    """A simulated trial, with the log lines of its nodes."""

    plan: Plan
    lines: dict[str, list[str]] = dataclasses.field(default_factory=lambda: defaultdict(list))  # by node

    @classmethod
    def of(
        cls, strategy: Strategy, steps: int, workers: int, batch: int, *, hash_every_step: bool = False, **workload: Any
    ) -> "SimulatedTrial":
        """Simulate a trial of one epoch; a switch happens at half of the steps, whatever the losses.

        Keys of the workload replace those of the small regression that the trial trains by default.
        """
        half = {"fraction": 0.5} if isinstance(strategy, SyncSwitch) else {"when": AtStepRule(fraction=0.5)}
        chosen = strategy.model_copy(update=half if strategy.training_phases().switch else {})
        (trial,) = Scenario.decode(make_document(chosen, steps, workers, batch, workload)).trials()
        plan = make_plan(trial, "simulated", "simulated", DummyAddresses())
        simulated = cls(plan.model_copy(update={"hash_every_step": hash_every_step}))
        simulate_trial(simulated.plan, lambda node: simulated.lines[node].append)
        return simulated

    @property
    def workers(self) -> list[str]:
        """Names of the workers, by rank."""
        return [node.name for node in self.plan.node_plans_of_role("worker")]

    def device_of(self, worker: str) -> str:
        """Return the name of the device on which a worker has computed."""
        (event,) = self.events(worker, "node_start")
        return str(event["value"]["device"])

    @property
    def stop(self) -> dict[str, Any]:
        """Metadata of the end of the run."""
        (event,) = self.events(COORDINATOR, "run_stop")
        return dict(event["metadata"])

    @property
    def loss(self) -> float:
        """Loss of the held-out samples at the end."""
        return float(self.events(COORDINATOR, "eval_metrics")[-1]["value"]["loss"])

    @property
    def params_sha256(self) -> str:
        """Digest of the parameters at the end."""
        return str(self.events(COORDINATOR, "params_sha256")[-1]["value"])

    def events(self, node: str, key: str) -> list[dict[str, Any]]:
        """Return the events of a node with this key."""
        parsed = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in self.lines[node])
        return [event for event in parsed if event["key"] == key]

    def rows(self, node: str, key: str) -> list[dict[str, Any]]:
        """Return all rows of a batched event."""
        batches = (event["value"] for event in self.events(node, key))
        return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]


def make_document(strategy: Strategy, steps: int, workers: int, batch: int, workload: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario whose model has at least 64 parameters, with a fifth of the samples held out."""
    default_workload = {
        "dataset": {
            "kind": "synthetic_regression",
            "samples": steps * batch * 5 // 4,
            "features": 4,
            "outputs": 2,
        },
        "model": {"kind": "mlp", "hidden": [12], "activation": "tanh"},
        "optimiser": {"kind": "momentum", "rate": 0.05},
        "batch": batch,
        "epochs": 1,
        "precision": "fp64",
    }
    return {
        "name": "simulated",
        "workload": default_workload | workload,
        "cluster": {"workers": workers, "worker": {"throughput": "1000/s"}},
        "strategies": {"it": strategy.model_dump(mode="json")},
        "baseline": False,
    }
