"""Run folders of trainings with random failures: a simulation writes the log lines that nodes would write."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from analysis.reading.run_folder import RunFolder, TrialFolder
from services.runtime.run_log import LOG_LINE_PREFIX, STEP_COLUMNS

STEP_S, CHECKPOINT_S, DETECTION_S, RECOVERY_S, ABSENCE_S, JOIN_S = 0.5, 1.0, 1.0, 2.0, 8.0, 1.0
FAILURE_KEY, POLICY_KEY = "events.0.at.random", "recovery.on_failure"
SCENARIO = "# How much of the time is useful when workers fail?\nname: failures\n"


@dataclass
class FailingTraining:
    """Synchronous training whose workers fail at exponential times; a failure breaks off the step of all workers."""

    policy: str
    workers: int
    steps: int
    mtbf_s: float  # of all workers together
    checkpoint_steps: int | None
    seed: int
    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def run(self) -> dict[str, list[str]]:
        """Return the log lines of all nodes."""
        self.rng, self.time_s, self.step, self.saved_step, self.epoch = np.random.default_rng(self.seed), 0.0, 0, 0, 0
        self.names = [f"worker-{rank}" for rank in range(self.workers)]
        self.members = [*self.names]
        self.returns: list[tuple[float, str]] = []
        self.failures = {name: self._draw_failure() for name in self.names}
        self.rows: dict[str, list[list[Any]]] = defaultdict(list)
        self._log("coordinator", "run_start", 0.0)
        while self.step < self.steps:
            self._advance()
        self._log("coordinator", "run_stop", self.time_s, status="success")
        for name in self.names:
            self._log(name, "node_steps", self.time_s, {"columns": list(STEP_COLUMNS), "rows": self.rows[name]})
            self._log(name, "node_stop", self.time_s, {"payload_bytes_sent": 0, "steps": len(self.rows[name])})
        return self.lines

    def _draw_failure(self) -> float:
        return self.time_s + float(self.rng.exponential(self.mtbf_s * self.workers))

    def _advance(self) -> None:
        """Do one step, or what follows the failure or the return that breaks off the step."""
        failed = min(self.members, key=lambda name: self.failures[name])
        can_fail = len(self.members) > 1 or self.policy == "restore"
        if self.returns and self.returns[0][0] < self.time_s + STEP_S:
            self._let_return(*self.returns.pop(0))
        elif can_fail and self.failures[failed] < self.time_s + STEP_S:
            self._lose(failed, max(self.time_s, self.failures[failed]))
        else:
            self._train()

    def _train(self) -> None:
        for name in self.members:
            known = {"step": self.step, "epoch": 0, "start_s": self.time_s, "step_s": STEP_S, "compute_s": STEP_S}
            known |= {"samples": 1, "loss": 1.0}
            self.rows[name].append([known.get(column, 0) for column in STEP_COLUMNS])
        self.time_s, self.step = self.time_s + STEP_S, self.step + 1
        if self.checkpoint_steps and self.step % self.checkpoint_steps == 0:
            self.time_s, self.saved_step = self.time_s + CHECKPOINT_S, self.step
            for name in self.members:
                value = {"step": self.step, "seconds": CHECKPOINT_S, "bytes": 1000}
                self._log(name, "checkpoint", self.time_s, value)

    def _lose(self, name: str, failure_s: float) -> None:
        known_s = failure_s + DETECTION_S
        lost = {"node": name, "reason": f"no heartbeat for {DETECTION_S:g} s", "silent_s": DETECTION_S}
        self._log("coordinator", "node_lost", known_s, lost)
        if self.policy == "restore":
            self.step = self.saved_step
        else:
            self.members.remove(name)
        if self.policy == "rejoin":
            self.returns = sorted([*self.returns, (failure_s + ABSENCE_S, name)])
        self.time_s = known_s
        self._begin_epoch(f"{name} lost", RECOVERY_S)
        self.failures[name] = self._draw_failure()

    def _let_return(self, time_s: float, name: str) -> None:
        self.time_s = max(self.time_s, time_s)
        self.members = [each for each in self.names if each in {*self.members, name}]
        self._begin_epoch(f"{name} joined again", JOIN_S)
        self.failures[name] = self._draw_failure()

    def _begin_epoch(self, cause: str, seconds: float) -> None:
        self.epoch += 1
        value = {"epoch": self.epoch, "workers": [*self.members], "cause": cause}
        self._log("coordinator", "membership_epoch", self.time_s, value)
        self.time_s += seconds
        for name in self.members:
            self._log(name, "recovery", self.time_s, {"epoch": self.epoch, "seconds": seconds}, step=self.step)

    def _log(self, node: str, key: str, time_s: float, value: Any = None, **metadata: Any) -> None:
        event = {"namespace": "" if node == "coordinator" else node, "time_ms": 1000 * time_s, "event_type": "POINT"}
        line = json.dumps(event | {"key": key, "value": value, "metadata": metadata})
        self.lines[node].append(LOG_LINE_PREFIX + line)


def write_failing_run(
    root: Path,
    policies: Sequence[str] = ("continue", "rejoin", "restore"),
    mtbfs_s: Sequence[float] = (15.0, 60.0, 240.0),
    checkpoint_steps: Sequence[int] = (40,),
    repeats: int = 3,
    workers: int = 8,
    steps: int = 600,
    *,
    declares_seconds: bool = False,
) -> RunFolder:
    """Write the folder of a run that sweeps policies, mean times between failures, and checkpoint intervals.

    The scenario declares the intervals in steps, or in seconds if `declares_seconds` is set.
    """
    folder = RunFolder(root / "failures" / "20260101T000000Z-abcd")
    (folder.path / "trials").mkdir(parents=True)
    for name in ("scenario.yaml", "resolved.yaml"):
        (folder.path / name).write_text(SCENARIO)
    manifest = {"versions": {"ensayo": "0.1.0"}, "engine": "simulated", "seeds": [1]}
    (folder.path / "manifest.json").write_text(json.dumps(manifest))
    swept = product(policies, mtbfs_s, checkpoint_steps, range(repeats))
    for index, (policy, mtbf_s, interval, repeat) in enumerate(swept):
        saves = policy == "restore"
        checkpoint = {"interval": f"{interval * STEP_S:g}s"} if declares_seconds else {"steps": interval}
        interval_label = {f"recovery.checkpoint.{key}": value for key, value in checkpoint.items()}
        labels = {POLICY_KEY: policy, FAILURE_KEY: f"{mtbf_s:g}s"} | (interval_label if saves else {})
        nodes = [{"name": "coordinator", "role": "coordinator", "rank": None}]
        nodes += [{"name": f"worker-{rank}", "role": "worker", "rank": rank} for rank in range(workers)]
        plan = {
            "trial": f"{index:03}-ring-w{workers}-r{repeat}", "label": "ring", "workers": workers, "repeat": repeat,
            "seed": 1 + repeat, "labels": labels, "nodes": nodes, "strategy": {"kind": "all_reduce"}, "batch": workers,
            "steps": steps, "train_samples": workers * steps, "epochs": 1, "engine": "simulated",
            "recovery": {"on_failure": policy, "checkpoint": checkpoint if saves else None},
        }  # fmt: skip
        trial = TrialFolder(folder.path / "trials" / str(plan["trial"]))
        (trial.path / "logs").mkdir(parents=True)
        trial.plan_path.write_text(json.dumps(plan))
        exit_codes = {node["name"]: 0 for node in nodes}
        status = {"trial": plan["trial"], "engine": "simulated", "status": "success", "exit_codes": exit_codes}
        trial.status_path.write_text(json.dumps(status))
        training = FailingTraining(policy, workers, steps, mtbf_s, interval if saves else None, index)
        for node, lines in training.run().items():
            trial.log_path(node).write_text("\n".join(lines) + "\n")
    return folder
