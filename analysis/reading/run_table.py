"""What happened in a run? Its folder as tidy frames: one row per event, units in the column names.

Times are virtual seconds since `run_start`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.reading import mllog
from analysis.reading import plan_view as plan
from analysis.reading.batches import frame, read_batches
from analysis.reading.damage import Damage, damage, damage_of_run
from analysis.reading.mllog import Broken, Log
from analysis.reading.plan_view import PlanView
from analysis.reading.run_folder import RunFolder, TrialFolder, read_json, read_object
from analysis.reading.switch_record import Switched, read_switch
from analysis.reading.trial_status import held
from analysis.reading.waiting import part_waiting

PHASES = ("data", "compute", "exchange", "wait", "update")

STEP_COLUMNS = (
    *("step", "epoch", "start_s", "step_s", "data_s", "compute_s", "exchange_s", "wait_s", "update_s", "late_s"),
    *("samples", "loss", "bytes_sent", "messages_sent", "staleness"),
)
NEEDED_STEP_COLUMNS = (
    *("step", "start_s", "step_s", "data_s", "compute_s", "exchange_s", "update_s", "samples", "loss", "bytes_sent"),
)  # of what a step took part of the others may be unknown
UPDATE_COLUMNS = ("version", "worker", "push_step", "staleness", "samples", "time_s")
EVENT_COLUMNS = ("number", "kind", "phase", "nodes", "planned_s", "applied_s", "lateness_s", "by")
COUNTED = ("payload_bytes_sent", "messages_sent", "deadlines", "missed_deadlines")  # by a node, at its end
EVAL_COLUMNS = ("time_s", "epoch", "samples", "step", "metric", "value")


@dataclass(frozen=True)
class TrialTable:
    """One trial: what was planned, how the engine says it ended, and frames of what the nodes printed.

    `steps`: node, rank and STEP_COLUMNS, a row per worker and step. `evals`: EVAL_COLUMNS, a row per metric of an
    evaluation. `updates`: UPDATE_COLUMNS, a row per gradient applied to the first shard. `hashes`: node, step, sha256.
    `nodes`: a row per node with the facts of its `node_start` and what its `node_stop` counted. `events`:
    EVENT_COLUMNS, a row per applied change and whoever applied it; its `nodes` are tuples. `stop`: metadata of
    `run_stop`; empty when there is none. `admission`: what was decided about the run before it started, if anything.
    `damage`: what of all this could not be read, or is no number; a trial with any is in no comparison.
    """

    plan: PlanView
    status: dict[str, Any]
    steps: pd.DataFrame
    evals: pd.DataFrame
    updates: pd.DataFrame
    hashes: pd.DataFrame
    nodes: pd.DataFrame
    events: pd.DataFrame
    seconds: float | None  # run_start to run_stop
    stop: dict[str, Any]
    params_sha256: str | None
    skipped_lines: int
    admission: dict[str, Any]
    switch: Switched | None = None  # what became of a switch between strategies, where one was planned
    damage: tuple[Damage, ...] = ()

    @property
    def unreadable(self) -> bool:
        """Whether a part of its record is lost, so that its numbers would be of something else."""
        return any(not each.diverged for each in self.damage)


@dataclass(frozen=True)
class RunTable:
    """All trials of a run, and the same frames over all of them with a `trial` column."""

    folder: RunFolder
    trials: tuple[TrialTable, ...]
    unread: tuple[Damage, ...] = ()  # of trials that could not be understood at all, and are not among the others

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Everything that is wrong with the run's files."""
        return (*damage_of_run(self.folder), *self.unread, *(each for trial in self.trials for each in trial.damage))

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per trial, worker and step."""
        return _stack((trial.plan.trial, trial.steps) for trial in self.trials)

    @cached_property
    def evals(self) -> pd.DataFrame:
        """One row per trial, evaluation and metric."""
        return _stack((trial.plan.trial, trial.evals) for trial in self.trials)

    @cached_property
    def updates(self) -> pd.DataFrame:
        """One row per trial and applied gradient."""
        return _stack((trial.plan.trial, trial.updates) for trial in self.trials)


def read_run(folder: RunFolder) -> RunTable:
    """Reads every trial that has a plan, finished or not."""
    return RunTable(folder, tuple(read_trial(trial) for trial in folder.trials))


def read_logs(folder: TrialFolder) -> dict[str, Log]:
    """What every node printed, by node."""
    return {path.stem: mllog.read(path) for path in folder.logs}


def read_trial(folder: TrialFolder, logs: Mapping[str, Log] | None = None) -> TrialTable:
    """Reads one trial, from `logs` where they have been read; what a broken-off trial did not write is empty."""
    planned, status = plan.read(folder.plan), held(read_json(folder.status))
    logs = read_logs(folder) if logs is None else logs
    coordinator = logs.get("coordinator", Log(()))
    zero_s = _seconds_at(coordinator, "run_start")
    end_s = _seconds_at(coordinator, "run_stop")
    switched = read_switch(logs, zero_s or 0.0) if planned.after else None
    stop, sha256 = coordinator.last("run_stop"), coordinator.last("params_sha256")
    steps, odd_steps = _steps(planned, switched, logs, zero_s or 0.0)
    holder = next(iter(planned.holders), "")
    rows, odd_updates = read_batches(logs.get(holder, Log(())), "shard_updates", UPDATE_COLUMNS, UPDATE_COLUMNS)
    updates = frame(rows, UPDATE_COLUMNS)
    evals = _evals(coordinator, zero_s or 0.0)
    return TrialTable(
        plan=planned,
        status=status,
        steps=steps,
        evals=evals,
        updates=updates.assign(time_s=updates["time_s"].astype(float) - (zero_s or 0.0)),
        hashes=_hashes(logs),
        nodes=_nodes(logs),
        events=_events(logs, folder.events),
        seconds=end_s - zero_s if zero_s is not None and end_s is not None else None,
        stop=dict(stop.metadata) if stop else {},
        params_sha256=str(sha256.value) if sha256 else None,
        skipped_lines=sum(log.skipped for log in logs.values()),
        admission=folder.run.manifest.get("admission") or {},
        switch=switched,
        damage=damage(folder, planned, status, logs, odd_steps | ({holder: odd_updates} if odd_updates else {})),
    )


def _seconds_at(log: Log, key: str) -> float | None:
    event = log.last(key)
    return event.time_ms / 1000 if event else None


def _steps(
    planned: PlanView, switched: Switched | None, logs: Mapping[str, Log], zero_s: float
) -> tuple[pd.DataFrame, dict[str, tuple[Broken, ...]]]:
    """The steps of all workers, and the lines of each that can't be used."""
    ranks = {node.name: node.rank for node in planned.nodes}
    names = sorted(node for node, log in logs.items() if log.of("node_steps"))
    read = {node: read_batches(logs[node], "node_steps", STEP_COLUMNS, NEEDED_STEP_COLUMNS) for node in names}
    odd = {node: told for node, (_, told) in read.items() if told}
    if not names:
        return pd.DataFrame(columns=["node", "rank", *STEP_COLUMNS]), odd
    counts = [len(rows) for rows, _ in read.values()]
    steps = frame(np.vstack([rows for rows, _ in read.values()]), STEP_COLUMNS)
    codes = np.repeat(np.arange(len(names)), counts)
    steps.insert(0, "node", pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(names))))
    steps.insert(1, "rank", np.repeat([ranks.get(node) for node in names], counts))
    wait_s = steps["wait_s"].astype(float).fillna(0.0)  # other versions did not log it
    steps = steps.assign(start_s=steps["start_s"].astype(float) - zero_s, wait_s=wait_s)
    return (_part_waiting(planned, switched, steps) if len(steps) else steps), odd


def _part_waiting(planned: PlanView, switched: Switched | None, steps: pd.DataFrame) -> pd.DataFrame:
    """In lockstep, where workers do the same step together, waiting is seen by the clock."""
    after = steps["start_s"] >= switched.begins_s if switched else pd.Series(data=False, index=steps.index)
    halves = [(steps[~after], planned.synchrony == "synchronous")]
    if planned.after:
        halves.append((steps[after], planned.after.synchronous))
    parted = [part_waiting(half) if lockstep else half for half, lockstep in halves if len(half)]
    return pd.concat(parted).sort_index() if len(parted) > 1 else parted[0]


def _evals(log: Log, zero_s: float) -> pd.DataFrame:
    """Every metric of `eval_metrics`; logs that are not ours have only `eval_accuracy`."""
    events = log.of("eval_metrics") or log.of("eval_accuracy")
    rows = [
        (
            event.time_ms / 1000 - zero_s,
            event.metadata.get("epoch_num"),
            event.metadata.get("samples_count"),
            event.metadata.get("step"),
            metric,
            value,
        )
        for event in events
        for metric, value in (
            event.value if isinstance(event.value, dict) else {event.metadata.get("metric", event.key): event.value}
        ).items()
    ]
    return _numbers(pd.DataFrame(rows, columns=list(EVAL_COLUMNS)), ("samples", "value"))


def _hashes(logs: Mapping[str, Log]) -> pd.DataFrame:
    rows = [
        (node, event.metadata.get("step"), event.value) for node, log in logs.items() for event in log.of("node_hash")
    ]
    if odd := next((value for _, _, value in rows if not isinstance(value, str)), None):
        raise TypeError(f"node_hash should be text, not {odd!r:.40}")
    return _numbers(pd.DataFrame(rows, columns=["node", "step", "sha256"]), ("step",))


def _nodes(logs: Mapping[str, Log]) -> pd.DataFrame:
    rows = [
        {"node": node, **(start.value if (start := log.last("node_start")) else {}), **stop.value}
        for node, log in logs.items()
        if (stop := log.last("node_stop")) and isinstance(stop.value, dict)
    ]
    columns = ["node", *COUNTED]
    nodes = pd.DataFrame(rows, columns=list(dict.fromkeys([*columns, *(key for row in rows for key in row)])))
    return _numbers(nodes, COUNTED)


def _numbers(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The same, once these are known to be numbers or unknown; a ValueError or TypeError says which is not."""
    frame[list(columns)].astype(float)  # `to_numeric` takes an empty list for nothing
    return frame.assign(**{name: pd.to_numeric(frame[name]) for name in columns})


def _events(logs: Mapping[str, Log], by_engine: Path) -> pd.DataFrame:
    """What nodes applied to themselves, then what the engine applied to links."""
    own = [{"nodes": (node,), **event.value} for node, log in logs.items() for event in log.of("event_applied")]
    told = [read_object(line) for line in _lines(by_engine)]
    rows = [*own, *({**row, "nodes": tuple(row.get("nodes", ()))} for row in told if row)]
    columns = list(dict.fromkeys([*EVENT_COLUMNS, *(key for row in rows for key in row)]))
    return _numbers(pd.DataFrame(rows, columns=columns), ("number", "planned_s", "applied_s", "lateness_s"))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def _stack(frames: Iterable[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    marked = [frame.assign(trial=trial) for trial, frame in frames if not frame.empty]
    return pd.concat(marked, ignore_index=True) if marked else pd.DataFrame()
