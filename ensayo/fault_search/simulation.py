"""Simulation of one fault schedule, and the logs of its nodes as evidence for invariants."""

import hashlib
import json
import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

from ensayo.fault_search.fault_schedule import FaultSchedule
from ensayo.fault_search.message_faults import SeededMessageFaults
from services.node.simulate import simulate_trial
from services.plan import COORDINATOR, TrainingPlan
from services.runtime.run_log import LOG_LINE_PREFIX
from services.schema.errors import first_error_in_group

WALL_LIMIT_S = 60.0  # a trial takes a fraction of a second
HOST_FACTS = re.compile(r'"cpu_seconds": [0-9.e-]+')  # of the log, which no two simulations share


class WallLimitExceeded(KeyboardInterrupt):
    """A simulated trial has not ended in `WALL_LIMIT_S` seconds.

    Event loops pass on this kind of exception only.
    """


@dataclass(frozen=True)
class TrialEvidence:
    """Logs and error of one simulated trial."""

    schedule: FaultSchedule
    plan: TrainingPlan
    lines: dict[str, list[str]]  # by node
    error: BaseException | None

    @cached_property
    def digest(self) -> str:
        """SHA-256 digest of all log lines and of the error."""
        content = HOST_FACTS.sub("", json.dumps([sorted(self.lines.items()), repr(self.error)]).replace('\\"', '"'))
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def events(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Log events by node and key, in the order of the log."""
        parsed: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for node, lines in self.lines.items():
            by_key = parsed.setdefault(node, defaultdict(list))
            for line in lines:
                event = json.loads(line.removeprefix(LOG_LINE_PREFIX))
                by_key[event["key"]].append(event)
        return parsed

    @cached_property
    def run_stop(self) -> dict[str, Any]:
        """Metadata of the end of the run; empty if the run did not end."""
        stops = self.events[COORDINATOR]["run_stop"]
        return dict(stops[-1]["metadata"]) if stops else {}

    @property
    def final_params_sha256(self) -> str:
        """Digest of the parameters at the end."""
        return str(self.events[COORDINATOR]["params_sha256"][-1]["value"])

    @property
    def final_loss(self) -> float:
        """Loss of the held-out samples at the end."""
        return float(self.events[COORDINATOR]["eval_metrics"][-1]["value"]["loss"])

    @property
    def end_s(self) -> float:
        """Virtual seconds from the start of the simulation to the last log line."""
        events = (event for keys in self.events.values() for of_key in keys.values() for event in of_key)
        return max((float(event["time_ms"]) for event in events), default=0.0) / 1e3

    @cached_property
    def has_changed_workers(self) -> bool:
        """Whether the workers of the training have changed after a loss."""
        return bool(self.events[COORDINATOR]["membership_epoch"])

    @cached_property
    def lost_nodes(self) -> frozenset[str]:
        """Names of the nodes that were lost at least once."""
        coordinator = self.events[COORDINATOR]
        joined = (name for event in coordinator["membership_epoch"] for name in event["value"]["joined"])
        return frozenset([*(event["value"]["node"] for event in coordinator["node_lost"]), *joined])

    @property
    def worker_names(self) -> list[str]:
        """Names of the workers, by rank."""
        return [node.name for node in self.plan.node_plans_of_role("worker")]

    @cached_property
    def pushing_workers(self) -> list[str]:
        """Names of the workers that push to servers, by rank: after a strategy switch, those that have switched."""
        if not self.events[COORDINATOR]["switch_committed"]:
            return self.worker_names
        commit_ms = self.events[COORDINATOR]["switch_committed"][-1]["time_ms"]
        epochs = self.events[COORDINATOR]["membership_epoch"]
        groups = [event["value"]["workers"] for event in epochs if event["time_ms"] < commit_ms]
        return list(groups[-1]) if groups else self.worker_names

    def rows(self, node: str, key: str) -> list[dict[str, Any]]:
        """Return all rows of a batched event in the log of a node."""
        batches = (event["value"] for event in self.events.get(node, {}).get(key, ()))
        return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]


def simulate_schedule(schedule: FaultSchedule) -> TrialEvidence:
    """Simulate a trial under a fault schedule, and return the logs of its nodes.

    Raises:
        ValueError: the strategy does not allow this number of workers or steps.
    """
    plan, lines, error = schedule.make_plan(), dict[str, list[str]](), None
    message_faults = SeededMessageFaults(schedule.messages) if schedule.messages else None
    try:
        with _wall_limit(), TemporaryDirectory() as checkpoints:
            simulate_trial(
                plan, lambda node: lines.setdefault(node, []).append, Path(checkpoints), message_faults=message_faults
            )
    except (Exception, WallLimitExceeded) as raised:  # noqa: BLE001 - the invariants judge every error of a trial
        error = first_error_in_group(raised)
    return TrialEvidence(schedule, plan, lines, error)


class ResultWithoutFaults(NamedTuple):
    """Result of a trial without any disturbance, with which disturbed trials are compared."""

    worker_names: tuple[str, ...]
    server_names: tuple[str, ...]
    end_s: float
    final_params_sha256: str


def simulate_without_faults(schedule: FaultSchedule) -> ResultWithoutFaults:
    """Return the result of the same trial without any disturbance; each trial is simulated once per process."""
    return _simulate_by_json(schedule.without_faults().model_copy(update={"seed": 0}).model_dump_json())


@lru_cache(maxsize=4096)
def _simulate_by_json(schedule_json: str) -> ResultWithoutFaults:
    evidence = simulate_schedule(FaultSchedule.model_validate_json(schedule_json))
    return ResultWithoutFaults(
        tuple(evidence.worker_names),
        tuple(node.name for node in evidence.plan.node_plans_of_role("ps_shard")),
        evidence.end_s,
        evidence.final_params_sha256 if evidence.error is None else "",
    )


@contextmanager
def _wall_limit() -> Iterator[None]:
    """Raise `WallLimitExceeded` in the `with` block after `WALL_LIMIT_S` seconds."""

    def stop(_signal_number: int, _frame: FrameType | None) -> None:
        raise WallLimitExceeded(f"the simulation did not end in {WALL_LIMIT_S:g} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT_S, WALL_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
