"""Whole trials, run by an engine's own code into folders that need not stay, and what their logs say."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from compose.engines.base import Engine
from compose.runs.supervisor import LogTail
from services.plan import Plan
from services.schema.errors import HostError

Doubts: TypeAlias = Callable[[Path], str]  # a trial's folder -> why its verdict is not valid; empty where it is


class Nobody:
    """Looks on and says nothing."""

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None:
        """The coordinator has logged something."""

    def preparation_started(self, what: str) -> None:
        """Something is being built."""


@contextmanager
def trained(engine: Engine, plan: Plan) -> Iterator[Path]:
    """The folder of one trial that is over.

    Raises:
        HostError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="ensayo-fidelity-") as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        (folder / "plan.json").write_text(plan.model_dump_json())
        status = engine.run_trial(plan, folder, Nobody())
        (folder / "status.json").write_text(status.model_dump_json())
        if status.status != "success":
            raise HostError(f"{plan.trial}: {status.reason}")
        yield folder


def step_s(folder: Path, plan: Plan) -> float:
    """The median step of all workers in virtual seconds, without the first, which waits for everybody's start."""
    return median(float(row["step_s"]) for row in steps(folder, plan) if row["step"])


def slowest_step_s(folder: Path, plan: Plan) -> float:
    """The same of the worker whose median is the largest: closed forms tell of it, and others need not wait for it."""
    each = (
        [float(row["step_s"]) for row in _rows(folder, node.name) if row["step"]]
        for node in plan.nodes_of_role("worker")
    )
    return max(map(median, each))


def pace_s(folder: Path, plan: Plan) -> float:
    """The median step where all wait for each other: from the end of one to the end of the next, of whoever is last.

    Who begins a step late and ends it early, and does the opposite in the next, goes no slower than all do.
    """
    ends: defaultdict[int, float] = defaultdict(float)  # by step
    for row in steps(folder, plan):
        ends[int(row["step"])] = max(ends[int(row["step"])], float(row["start_s"]) + float(row["step_s"]))
    return median(after - before for before, after in pairwise(ends[step] for step in sorted(ends)))


def steps(folder: Path, plan: Plan) -> list[dict[str, Any]]:
    """A row per worker and step."""
    return [row for node in plan.nodes_of_role("worker") for row in _rows(folder, node.name)]


def applied(folder: Path) -> Iterator[dict[str, Any]]:
    """Changes, as the engine tells of links, in a file of its own, and as nodes tell of themselves."""
    for path in folder.glob("logs/*.log"):
        yield from (event["value"] for event in LogTail(path).read_new_events() if event["key"] == "event_applied")
    told = folder / "events.jsonl"
    yield from map(json.loads, told.read_text().splitlines() if told.exists() else ())


def _rows(folder: Path, node: str) -> Iterator[dict[str, Any]]:
    for event in LogTail(folder / "logs" / f"{node}.log").read_new_events():
        if event["key"] == "node_steps":
            batch = event["value"]
            yield from (dict(zip(batch["columns"], row, strict=True)) for row in batch["rows"])
