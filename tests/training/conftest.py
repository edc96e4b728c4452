"""A whole trial in one process and in virtual time, and everything that it left behind."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pytest
from replay import Arrivals, Course

from services.cluster.addresses import InProcessAddresses
from services.coordinator.runtime import CoordinatorRuntime
from services.node.simulate import simulate_trial
from services.plan import COORDINATOR, Plan, make_plan
from services.runtime.control import EpochReport, FinalState
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.scenario import Scenario
from services.schema.arrays import HostArray

Row: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]

# 80 samples for training.
NUMBERS = {"kind": "synthetic_regression", "samples": 100, "features": 4, "outputs": 2, "hidden": 8}


@dataclass
class Rehearsal:
    """A trial that is over."""

    plan: Plan
    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by node, as written
    carried: list[HostArray] = field(default_factory=list)  # parameters of worker 0 after each epoch
    finals: dict[str, bytes] = field(default_factory=dict)  # what each server handed in

    @property
    def params(self) -> HostArray:
        """The result: what asynchronous servers hold, else what worker 0 held last."""
        if self.plan.shard_owners and not self.plan.is_synchronous:
            held = [self.finals[name] for name in self.plan.shard_owners]
            return np.frombuffer(b"".join(held), self.plan.dtype)
        return self.carried[-1]

    def events(self, node: str, key: str) -> list[Row]:
        """The events of one kind that a node has logged."""
        parsed = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in self.lines[node])
        return [event for event in parsed if event["key"] == key]

    def value(self, node: str, key: str) -> Any:
        """What a node has logged exactly once."""
        (event,) = self.events(node, key)
        return event["value"]

    def rows(self, node: str, key: str) -> list[Row]:
        """All rows of a batched event."""
        batches = (event["value"] for event in self.events(node, key))
        return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]

    def steps(self, rank: int) -> list[Row]:
        """The steps of one worker."""
        return self.rows(f"worker-{rank}", "node_steps")

    @property
    def arrivals(self) -> list[Arrivals]:
        """What every shard has logged."""
        keys = ("shard_updates", "shard_drops")
        return [Arrivals(*(self.rows(holder, key) for key in keys)) for holder in self.plan.shard_owners]

    @property
    def course(self) -> Course:
        """What replays need besides."""
        ends = [max((row["step"] + 1 for row in self.steps(rank)), default=0) for rank in range(self.plan.workers)]
        committed = [event["value"]["step"] for event in self.events(COORDINATOR, "switch_committed")]
        return Course(ends, committed[0] if committed else None)


Rehearse: TypeAlias = Callable[..., Rehearsal]


def plan_of(document: Document, *, hash_every_step: bool = False) -> Plan:
    """The plan of a document's only trial."""
    (trial,) = Scenario.decode(document).trials()
    plan = make_plan(trial, "rehearsal", "simulated", InProcessAddresses())
    return plan.model_copy(update={"hash_every_step": hash_every_step})


@pytest.fixture
def rehearse(monkeypatch: pytest.MonkeyPatch) -> Rehearse:
    """Runs one strategy on a small regression: `rehearse(strategy, workers, **workload, cluster=…)`."""
    current: list[Rehearsal] = []
    end_epoch, leave = CoordinatorRuntime.report_epoch, CoordinatorRuntime.leave

    async def carry(desk: CoordinatorRuntime, epoch: EpochReport) -> str:
        if epoch.parameters:
            current[-1].carried.append(np.frombuffer(epoch.parameters, desk.plan.dtype))
        return await end_epoch(desk, epoch)

    async def hand_in(desk: CoordinatorRuntime, node: str, final: FinalState) -> None:
        if final.parameters:
            current[-1].finals[node] = final.parameters
        await leave(desk, node, final)

    monkeypatch.setattr(CoordinatorRuntime, "report_epoch", carry)
    monkeypatch.setattr(CoordinatorRuntime, "leave", hand_in)

    def run(
        strategy: Document,
        workers: int,
        *,
        cluster: Document | None = None,
        hash_every_step: bool = False,
        timeouts: Document | None = None,
        events: list[Document] | None = None,
        seed: int = 1,
        **workload: Any,
    ) -> Rehearsal:
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
            "seed": seed,
        }
        rehearsal = Rehearsal(plan_of(document, hash_every_step=hash_every_step))
        current.append(rehearsal)
        simulate_trial(rehearsal.plan, lambda node: rehearsal.lines[node].append)
        return rehearsal

    return run
