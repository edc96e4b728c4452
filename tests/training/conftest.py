"""Fixture that simulates a whole trial in one process and in virtual time, with access to its logs and parameters."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from replay import ShardArrivals, TrialProgress

from services.cluster.addresses import DummyAddresses
from services.coordinator.runtime import CoordinatorRuntime
from services.node.simulate import simulate_trial
from services.plan import COORDINATOR, Plan, make_plan
from services.runtime.control import EvaluationPointReport, FinalNodeReport
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.scenario import Scenario
from services.schema.arrays import HostArray
from services.schema.component import ScenarioComponent

Row: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]

# 80 samples for training.
NUMBERS = {"kind": "synthetic_regression", "samples": 100, "features": 4, "outputs": 2, "hidden": 8}


@dataclass
class SimulatedTrial:
    """A finished trial."""

    plan: Plan
    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by node, as written
    epoch_params: list[HostArray] = field(default_factory=list)  # parameters of worker 0 after each epoch
    final_shards: dict[str, bytes] = field(default_factory=dict)  # by node: its final (range of the) parameters

    @property
    def params(self) -> HostArray:
        """Final parameters: of asynchronous servers, the mean over asynchronous workers, otherwise of worker 0."""
        if self.plan.is_result_on_workers:
            return np.mean(self.final_worker_params, axis=0, dtype=np.float64)
        if self.plan.shard_owners and not self.plan.is_synchronous:
            shards = [self.final_shards[name] for name in self.plan.shard_owners]
            return np.frombuffer(b"".join(shards), self.plan.dtype)
        return self.epoch_params[-1]

    @property
    def final_worker_params(self) -> list[HostArray]:
        """Final parameters of each asynchronous worker without servers, by rank."""
        names = [node.name for node in self.plan.node_plans_of_role("worker")]
        return [np.frombuffer(self.final_shards[name], self.plan.dtype) for name in names]

    def events(self, node: str, key: str) -> list[Row]:
        """Return the events with this key that a node has logged."""
        parsed = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in self.lines[node])
        return [event for event in parsed if event["key"] == key]

    def value(self, node: str, key: str) -> Any:
        """Return the value of an event that a node has logged exactly once."""
        (event,) = self.events(node, key)
        return event["value"]

    def rows(self, node: str, key: str) -> list[Row]:
        """Return all rows of a batched event."""
        batches = (event["value"] for event in self.events(node, key))
        return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]

    def steps(self, rank: int) -> list[Row]:
        """Return the logged steps of one worker."""
        return self.rows(f"worker-{rank}", "node_steps")

    @property
    def arrivals(self) -> list[ShardArrivals]:
        """Updates and drops that each shard has logged."""
        keys = ("shard_updates", "shard_drops")
        return [ShardArrivals(*(self.rows(owner, key) for key in keys)) for owner in self.plan.shard_owners]

    @property
    def progress(self) -> TrialProgress:
        """Number of steps per worker and step of the switch, as replays need them."""
        ends = [max((row["step"] + 1 for row in self.steps(rank)), default=0) for rank in range(self.plan.workers)]
        committed = [event["value"]["step"] for event in self.events(COORDINATOR, "switch_committed")]
        return TrialProgress(ends, committed[0] if committed else None)


Simulate: TypeAlias = Callable[..., SimulatedTrial]


def plan_of(
    document: Document, *, hash_every_step: bool = False, parts: dict[str, ScenarioComponent] | None = None
) -> Plan:
    """Return the plan of a document's only trial; `parts`, which need not be registered, replace its strategy's."""
    (trial,) = Scenario.decode(document).trials()
    if parts:
        trial = trial.model_copy(update={"strategy": trial.strategy.model_copy(update=parts)})
    plan = make_plan(trial, "rehearsal", "simulated", DummyAddresses())
    return plan.model_copy(update={"hash_every_step": hash_every_step})


@pytest.fixture
def simulated_trials() -> list[SimulatedTrial]:
    """All trials of the test in their order, also those that have ended with an error."""
    return []


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, simulated_trials: list[SimulatedTrial]) -> Simulate:
    """Simulate one strategy on a small regression: `simulate(strategy, workers, **workload, cluster=…)`."""
    trials = simulated_trials
    report_evaluation_point, leave = CoordinatorRuntime.report_evaluation_point, CoordinatorRuntime.leave

    async def record_point(runtime: CoordinatorRuntime, report: EvaluationPointReport) -> str:
        if report.parameters:
            trials[-1].epoch_params.append(np.frombuffer(report.parameters, runtime.plan.dtype))
        return await report_evaluation_point(runtime, report)

    async def record_final(runtime: CoordinatorRuntime, node: str, final: FinalNodeReport) -> None:
        if final.parameters:
            trials[-1].final_shards[node] = final.parameters
        await leave(runtime, node, final)

    monkeypatch.setattr(CoordinatorRuntime, "report_evaluation_point", record_point)
    monkeypatch.setattr(CoordinatorRuntime, "leave", record_final)

    def run(  # noqa: PLR0913 - sections of a scenario, all of them optional
        strategy: Document,
        workers: int,
        *,
        cluster: Document | None = None,
        hash_every_step: bool = False,
        timeouts: Document | None = None,
        events: list[Document] | None = None,
        recovery: Document | None = None,
        seed: int = 1,
        parts: dict[str, ScenarioComponent] | None = None,
        data_protection: str = "signed",
        transport: str = "grpc",
        **workload: Any,
    ) -> SimulatedTrial:
        document = {
            "name": "rehearsal",
            "workload": {
                "dataset": NUMBERS,
                "model": {"kind": "mlp", "hidden": [5], "activation": "tanh"},
                "optimiser": {"kind": "momentum", "rate": 0.05},
                "batch": 12,
                "epochs": 3,
                **workload,
            },
            "cluster": {"workers": workers, "worker": {"throughput": "1000/s"}, **(cluster or {})},
            "strategies": {"it": strategy},
            "baseline": False,
            "timeouts": timeouts or {},
            "events": events or [],
            "recovery": recovery or {},
            "seed": seed,
            "security": {"data": data_protection},
            "transport": transport,
        }
        trial = SimulatedTrial(plan_of(document, hash_every_step=hash_every_step, parts=parts))
        trials.append(trial)
        simulate_trial(trial.plan, lambda node: trial.lines[node].append, tmp_path)
        return trial

    return run
