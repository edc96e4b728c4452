"""Whole trials, run by an engine in temporary folders, their verdicts and the step times in their logs."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from analysis.exports.trial_verdict import TrialValidityVerdict
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import read_node_logs, read_trial_tables
from compose.engines.base import TrialEngine
from compose.runs.trials.log_tail import LogTail
from services.plan import Plan
from services.schema.errors import HostError


class SilentObserver:
    """Observer that ignores all notifications of an engine."""

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        """Ignore a log event of the coordinator."""

    def engine_preparation_started(self, description: str) -> None:
        """Ignore that the engine prepares something."""


@contextmanager
def run_trial(engine: TrialEngine, plan: Plan) -> Iterator[Path]:
    """Run a trial in a temporary folder and yield the folder once the trial has finished.

    Raises:
        HostError: the trial failed.
    """
    with tempfile.TemporaryDirectory(prefix="ensayo-fidelity-") as folder_name:
        folder = Path(folder_name)
        (folder / "logs").mkdir()
        (folder / "plan.json").write_text(plan.model_dump_json())
        status = engine.run_trial(plan, folder, SilentObserver())
        (folder / "status.json").write_text(status.model_dump_json())
        if status.status != "success":
            raise HostError(f"trial {plan.trial} failed: {status.reason}")
        yield folder


def read_verdict_reasons(trial_path: Path) -> str:
    """Return the reasons why the verdict of a trial is not valid; empty if it is valid.

    Capacity is not checked: these trials belong to no run.
    """
    trial = TrialFolder(trial_path)
    return "; ".join(TrialValidityVerdict.from_checking_trial(read_trial_tables(trial, read_node_logs(trial))).reasons)


def median_step_s(trial_path: Path, plan: Plan) -> float:
    """Return the median step time of all workers in virtual seconds.

    The first step is left out: it includes the wait until all workers have started.
    """
    return median(float(row["step_s"]) for row in read_steps(trial_path, plan) if row["step"])


def slowest_worker_step_s(trial_path: Path, plan: Plan) -> float:
    """Return the largest of the workers' median step times in virtual seconds, without the first steps.

    Closed forms predict the slowest worker, and asynchronous workers do not wait for it.
    """
    steps_of_workers = (
        [float(row["step_s"]) for row in _read_node_steps(trial_path, node.name) if row["step"]]
        for node in plan.node_plans_of_role("worker")
    )
    return max(map(median, steps_of_workers))


def synchronous_step_s(trial_path: Path, plan: Plan) -> float:
    """Return the median step time of synchronous workers in virtual seconds.

    A step lasts from the moment at which the last worker ends the step before to the moment at which the last worker
    ends this step. Workers that are early in one step and late in the next therefore do not change the result.
    """
    step_ends: defaultdict[int, float] = defaultdict(float)  # step -> end of its last worker
    for row in read_steps(trial_path, plan):
        step = int(row["step"])
        step_ends[step] = max(step_ends[step], float(row["start_s"]) + float(row["step_s"]))
    return median(after - before for before, after in pairwise(step_ends[step] for step in sorted(step_ends)))


def read_steps(trial_path: Path, plan: Plan) -> list[dict[str, Any]]:
    """Return the logged step measurements of all workers, one dictionary per worker and step."""
    return [row for node in plan.node_plans_of_role("worker") for row in _read_node_steps(trial_path, node.name)]


def read_applied_events(trial_path: Path) -> Iterator[dict[str, Any]]:
    """Yield the applied events of a trial: those that nodes have logged, then those that the engine has recorded."""
    for path in trial_path.glob("logs/*.log"):
        yield from (event["value"] for event in LogTail(path).read_new_events() if event["key"] == "event_applied")
    engine_events = trial_path / "events.jsonl"
    yield from map(json.loads, engine_events.read_text().splitlines() if engine_events.exists() else ())


def _read_node_steps(trial_path: Path, node_name: str) -> Iterator[dict[str, Any]]:
    for event in LogTail(trial_path / "logs" / f"{node_name}.log").read_new_events():
        if event["key"] == "node_steps":
            batch = event["value"]
            yield from (dict(zip(batch["columns"], row, strict=True)) for row in batch["rows"])
