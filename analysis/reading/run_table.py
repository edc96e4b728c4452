"""Data tables of a run: one row per step, evaluation, update or event.

Column names end with the unit. Times are seconds of virtual time since the event `run_start`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.reading.damage import FileProblem, find_run_file_damage, find_trial_file_damage
from analysis.reading.logs import mllog
from analysis.reading.logs.batches import read_logged_rows, rows_to_data_frame
from analysis.reading.logs.bucket_exchanges import read_bucket_exchanges
from analysis.reading.logs.collectives import read_collectives
from analysis.reading.logs.consensus import read_consensus
from analysis.reading.logs.mllog import NodeLog, UnusableLogLine
from analysis.reading.logs.switch_record import StrategySwitchRecord, read_strategy_switch
from analysis.reading.plan_view import TrialPlan, read_plan
from analysis.reading.run_folder import RunFolder, TrialFolder, parse_json_object, read_json
from analysis.reading.trial_status import validate_trial_status
from analysis.reading.waiting import separate_straggler_wait
from services.learning.sample_pictures import SamplePictures, read_sample_pictures
from services.runtime.run_log import STEP_COLUMNS, UPDATE_COLUMNS

STEP_PHASES = ("data", "compute", "exchange", "wait", "update")

READ_STEP_COLUMNS = tuple(column for column in STEP_COLUMNS if column not in {"forward_s", "backward_s"})
OPTIONAL_STEP_COLUMNS = {  # may be unknown
    *("epoch", "wait_s", "late_s", "messages_sent", "staleness", "hidden_s", "early_s"),
}
REQUIRED_STEP_COLUMNS = tuple(column for column in READ_STEP_COLUMNS if column not in OPTIONAL_STEP_COLUMNS)
EVENT_COLUMNS = ("number", "kind", "phase", "nodes", "planned_s", "applied_s", "lateness_s", "by")
NODE_COUNTERS = ("payload_bytes_sent", "messages_sent", "deadlines", "missed_deadlines")  # in `node_stop`
EVAL_COLUMNS = ("time_s", "epoch", "samples", "step", "metric", "value", "duration_s")


@dataclass(frozen=True)
class TrialLogTables:
    """Data of one trial: its plan, its status, and data frames read from the logs of its nodes.

    - `status`: content of status.json, how the trial ended as the engine reports it.
    - `steps`: columns node, rank and READ_STEP_COLUMNS; a row per worker and step.
    - `evals`: EVAL_COLUMNS; a row per evaluation and metric.
    - `updates`: UPDATE_COLUMNS; a row per gradient that was applied to the first shard.
    - `parameter_hashes`: node, step, sha256; a row per hash that a node reported.
    - `nodes`: a row per node, with the facts of its `node_start` and the counters of its `node_stop`.
    - `events`: EVENT_COLUMNS; a row per applied change, its nodes as a tuple, and the node or engine that applied it.
    - `sample_pictures`: pictures that show what the trained model does; None if its model has none.
    - `collectives`: node and COLLECTIVE_COLUMNS; a row per node and collective of a user's command.
    - `consensus`: node, step and CONSENSUS_COLUMNS; a row per worker and evaluation of a gossip strategy.
    - `buckets`: node, BUCKET_COLUMNS and arrays; a row per worker and exchanged part of a gradient bucket.
    - `run_stop`: metadata of the event `run_stop`; empty if there is none.
    - `capacity_check`: dilation that a host of this speed needs, as checked before the run; empty if unchecked.
    - `disturbed_attempts`: for each attempt that was repeated, how the host disturbed it.
    - `damage`: problems of the trial's files; a trial with damage is excluded from comparisons.
    """

    plan: TrialPlan
    status: dict[str, Any]
    steps: pd.DataFrame
    evals: pd.DataFrame
    updates: pd.DataFrame
    parameter_hashes: pd.DataFrame
    nodes: pd.DataFrame
    events: pd.DataFrame
    seconds: float | None  # from run_start to run_stop
    run_stop: dict[str, Any]
    params_sha256: str | None
    unusable_line_count: int
    capacity_check: dict[str, Any]
    switch_record: StrategySwitchRecord | None = None  # of a strategy that switches
    sample_pictures: SamplePictures | None = None
    collectives: pd.DataFrame = field(default_factory=lambda: read_collectives({}, 0.0))  # of a user's command
    consensus: pd.DataFrame = field(default_factory=lambda: read_consensus({}))  # of a gossip strategy
    buckets: pd.DataFrame = field(default_factory=lambda: read_bucket_exchanges({}, 0.0, {})[0])
    damage: tuple[FileProblem, ...] = ()
    disturbed_attempts: tuple[str, ...] = ()

    @property
    def is_unreadable(self) -> bool:
        """Whether the numbers of the trial would be wrong because files are lost or damaged."""
        return any(not damage.is_divergence for damage in self.damage)

    @property
    def has_diverged(self) -> bool:
        """Whether a loss of the trial was NaN or infinite, by the coordinator's log or by the logged losses."""
        return bool(self.run_stop.get("diverged")) or any(damage.is_divergence for damage in self.damage)


@dataclass(frozen=True)
class RunLogTables:
    """Data of all trials of a run.

    Its data frames are those of the trials with an additional column `trial`.
    """

    folder: RunFolder
    trials: tuple[TrialLogTables, ...]
    unread_trial_damage: tuple[FileProblem, ...] = ()  # of the trials that could not be read and are not in `trials`

    @property
    def file_damage(self) -> tuple[FileProblem, ...]:
        """All damage of the run's files."""
        of_trials = (damage for trial in self.trials for damage in trial.damage)
        return (*find_run_file_damage(self.folder), *self.unread_trial_damage, *of_trials)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Steps of all trials: one row per trial, worker and step."""
        return _concatenate_trial_frames((trial.plan.trial, trial.steps) for trial in self.trials)

    @cached_property
    def evals(self) -> pd.DataFrame:
        """Evaluations of all trials: one row per trial, evaluation and metric."""
        return _concatenate_trial_frames((trial.plan.trial, trial.evals) for trial in self.trials)

    @cached_property
    def updates(self) -> pd.DataFrame:
        """Parameter updates of all trials: one row per trial and applied gradient."""
        return _concatenate_trial_frames((trial.plan.trial, trial.updates) for trial in self.trials)

    @cached_property
    def buckets(self) -> pd.DataFrame:
        """Exchanges of gradient buckets of all trials: one row per trial, worker and part of a bucket."""
        return _concatenate_trial_frames((trial.plan.trial, trial.buckets) for trial in self.trials)


def read_node_logs(trial_folder: TrialFolder) -> dict[str, NodeLog]:
    """Read the logs of all nodes of a trial; return them by node name."""
    return {path.stem: mllog.read_log(path) for path in trial_folder.log_paths}


def read_trial_tables(
    trial_folder: TrialFolder, log_by_node_name: Mapping[str, NodeLog] | None = None
) -> TrialLogTables:
    """Read the data tables of one trial from its folder.

    The node logs are read too, unless they are given. Tables without logged rows are empty.
    """
    plan, status = read_plan(trial_folder.plan_path), validate_trial_status(read_json(trial_folder.status_path))
    log_by_node_name = read_node_logs(trial_folder) if log_by_node_name is None else log_by_node_name
    coordinator_log = log_by_node_name.get("coordinator", NodeLog(()))
    start_s, end_s = (_last_event_time_s(coordinator_log, key) for key in ("run_start", "run_stop"))
    zero_s = start_s or 0.0
    switch_record = read_strategy_switch(log_by_node_name, zero_s) if plan.second_phase else None
    run_stop, sha256 = coordinator_log.last_event("run_stop"), coordinator_log.last_event("params_sha256")
    pictures = coordinator_log.last_event("sample_pictures")
    steps, unusable_batches = _build_step_table(plan, switch_record, log_by_node_name, zero_s)
    first_owner = next(iter(plan.shard_owners), "")
    first_owner_log = log_by_node_name.get(first_owner, NodeLog(()))
    rows, unusable_updates = read_logged_rows(first_owner_log, "shard_updates", UPDATE_COLUMNS, UPDATE_COLUMNS)
    switch_s = switch_record.second_strategy_start_s if switch_record else inf
    buckets, unusable_buckets = read_bucket_exchanges(log_by_node_name, zero_s, plan.strategy, switch_s)
    for name, lines in (*unusable_buckets.items(), (first_owner, unusable_updates)):
        unusable_batches[name] = (*unusable_batches.get(name, ()), *lines)
    updates = rows_to_data_frame(rows, UPDATE_COLUMNS)
    evals = _build_evaluation_table(coordinator_log, zero_s)
    return TrialLogTables(
        plan=plan,
        status=status,
        steps=steps,
        evals=evals,
        updates=updates.assign(time_s=updates["time_s"].astype(float) - zero_s),
        parameter_hashes=_make_param_hash_table(log_by_node_name),
        nodes=_build_node_table(log_by_node_name),
        events=_build_event_table(log_by_node_name, trial_folder.link_events_path),
        seconds=end_s - start_s if start_s is not None and end_s is not None else None,
        run_stop=dict(run_stop.metadata) if run_stop else {},
        params_sha256=str(sha256.value) if sha256 else None,
        unusable_line_count=sum(log.unusable_line_count for log in log_by_node_name.values()),
        capacity_check=trial_folder.parent_run_folder.manifest.get("admission") or {},
        switch_record=switch_record,
        sample_pictures=read_sample_pictures(pictures.value) if pictures else None,
        collectives=read_collectives(log_by_node_name, zero_s),
        consensus=read_consensus(log_by_node_name),
        buckets=buckets,
        damage=find_trial_file_damage(trial_folder, plan, status, log_by_node_name, unusable_batches),
        disturbed_attempts=tuple(_read_disturbances(trial_folder.earlier_attempts)),
    )


def _read_disturbances(attempt_folders: Iterable[TrialFolder]) -> Iterator[str]:
    """Yield how the host disturbed each of several attempts; attempts that were interrupted are left out."""
    statuses = (read_json(folder.status_path) for folder in attempt_folders)
    return (str(status["disturbance"]) for status in statuses if status.get("disturbance"))


def _last_event_time_s(node_log: NodeLog, event_key: str) -> float | None:
    """Return the timestamp of the last log event with the given key, in seconds."""
    event = node_log.last_event(event_key)
    return event.time_ms / 1000 if event else None


def _build_step_table(
    plan: TrialPlan, strategy_switch: StrategySwitchRecord | None, logs: Mapping[str, NodeLog], start_s: float
) -> tuple[pd.DataFrame, dict[str, tuple[UnusableLogLine, ...]]]:
    """Return the table of the steps of all workers, and the unusable log lines by node name."""
    ranks = {node.name: node.rank for node in plan.nodes}
    names = sorted(name for name, log in logs.items() if log.events_with_key("node_steps"))
    read = {
        name: read_logged_rows(logs[name], "node_steps", READ_STEP_COLUMNS, REQUIRED_STEP_COLUMNS) for name in names
    }
    unusable = {name: lines for name, (_, lines) in read.items() if lines}
    if not names:
        return pd.DataFrame(columns=["node", "rank", *READ_STEP_COLUMNS]), unusable
    row_counts = [len(rows) for rows, _ in read.values()]
    steps = rows_to_data_frame(np.vstack([rows for rows, _ in read.values()]), READ_STEP_COLUMNS)
    name_codes = np.repeat(np.arange(len(names)), row_counts)
    steps.insert(0, "node", pd.Series(pd.Categorical.from_codes(name_codes, categories=pd.Index(names))))
    steps.insert(1, "rank", np.repeat([ranks.get(name) for name in names], row_counts))
    wait_s = steps["wait_s"].astype(float).fillna(0.0)  # other versions did not log `wait_s`
    steps = steps.assign(start_s=steps["start_s"].astype(float) - start_s, wait_s=wait_s)
    return (_recompute_wait_times(plan, strategy_switch, steps) if len(steps) else steps), unusable


def _recompute_wait_times(
    plan: TrialPlan, strategy_switch: StrategySwitchRecord | None, step_table: pd.DataFrame
) -> pd.DataFrame:
    """Return the step table with recomputed waiting times.

    Times are recomputed only for training phases in which all workers wait for each other.
    """
    no_step = pd.Series(data=False, index=step_table.index)
    is_after = step_table["start_s"] >= strategy_switch.second_strategy_start_s if strategy_switch else no_step
    phases = [(step_table[~is_after], plan.sync_or_async == "synchronous" and not plan.is_gossip)]
    if plan.second_phase:
        phases.append((step_table[is_after], plan.second_phase.is_synchronous))
    split = [separate_straggler_wait(rows) if is_synchronous else rows for rows, is_synchronous in phases if len(rows)]
    return pd.concat(split).sort_index() if len(split) > 1 else split[0]


def _build_evaluation_table(coordinator_log: NodeLog, start_s: float) -> pd.DataFrame:
    """Return a table with one row per evaluation and metric.

    Logs of other programs have no `eval_metrics`, only `eval_accuracy`. The duration of an evaluation is unknown where
    its start or its end is not logged.
    """
    events = coordinator_log.events_with_key("eval_metrics") or coordinator_log.events_with_key("eval_accuracy")
    durations_s = _evaluation_durations_s(coordinator_log, len(events))
    rows = [
        (
            event.time_ms / 1000 - start_s,
            event.metadata.get("epoch_num"),
            event.metadata.get("samples_count"),
            event.metadata.get("step"),
            metric,
            value,
            duration_s,
        )
        for event, duration_s in zip(events, durations_s, strict=True)
        for metric, value in (
            event.value if isinstance(event.value, dict) else {event.metadata.get("metric", event.key): event.value}
        ).items()
    ]
    return _convert_to_numbers(pd.DataFrame(rows, columns=list(EVAL_COLUMNS)), ("samples", "value", "duration_s"))


def _evaluation_durations_s(coordinator_log: NodeLog, evaluation_count: int) -> list[float | None]:
    """Return the duration of each evaluation in seconds, None for all of them if the log is incomplete."""
    starts, stops = (coordinator_log.events_with_key(key) for key in ("eval_start", "eval_stop"))
    if not len(starts) == len(stops) == evaluation_count:
        return [None] * evaluation_count
    return [(stop.time_ms - start.time_ms) / 1000 for start, stop in zip(starts, stops, strict=True)]


def _make_param_hash_table(log_by_node_name: Mapping[str, NodeLog]) -> pd.DataFrame:
    rows = [
        (node_name, event.metadata.get("step"), event.value)
        for node_name, log in log_by_node_name.items()
        for event in log.events_with_key("node_hash")
    ]
    if not_text := next((value for _, _, value in rows if not isinstance(value, str)), None):
        raise TypeError(f"node_hash: value should be text, not {not_text!r:.40}")
    return _convert_to_numbers(pd.DataFrame(rows, columns=["node", "step", "sha256"]), ("step",))


def _build_node_table(log_by_node_name: Mapping[str, NodeLog]) -> pd.DataFrame:
    rows = [
        {"node": node_name, **(start.value if (start := log.last_event("node_start")) else {}), **stop.value}
        for node_name, log in log_by_node_name.items()
        if (stop := log.last_event("node_stop")) and isinstance(stop.value, dict)
    ]
    columns = dict.fromkeys(["node", *NODE_COUNTERS, *(key for row in rows for key in row)])
    return _convert_to_numbers(pd.DataFrame(rows, columns=list(columns)), NODE_COUNTERS)


def _convert_to_numbers(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the data frame with the given columns converted to numbers.

    Raise ValueError or TypeError if a value is present but not a number.
    """
    frame[list(columns)].astype(float)  # raises for an empty list, which `to_numeric` accepts as unknown
    return frame.assign(**{name: pd.to_numeric(frame[name]) for name in columns})


def _build_event_table(log_by_node_name: Mapping[str, NodeLog], link_events_path: Path) -> pd.DataFrame:
    """Return the table of events that were applied during a trial.

    Events that nodes applied themselves come first, then the link changes of the engine.
    """
    by_nodes = [
        {"nodes": (node_name,), **event.value}
        for node_name, log in log_by_node_name.items()
        for event in log.events_with_key("event_applied")
    ]
    by_engine = [parse_json_object(line) for line in _read_lines(link_events_path)]
    rows = [*by_nodes, *({**row, "nodes": tuple(row.get("nodes", ()))} for row in by_engine if row)]
    columns = dict.fromkeys([*EVENT_COLUMNS, *(key for row in rows for key in row)])
    numeric_columns = ("number", "planned_s", "applied_s", "lateness_s")
    return _convert_to_numbers(pd.DataFrame(rows, columns=list(columns)), numeric_columns)


def _read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def _concatenate_trial_frames(frames_by_trial: Iterable[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Return the data frames of all trials as one frame, with the trial's name in the column `trial`."""
    with_trial = [frame.assign(trial=trial_name) for trial_name, frame in frames_by_trial if not frame.empty]
    return pd.concat(with_trial, ignore_index=True) if with_trial else pd.DataFrame()
