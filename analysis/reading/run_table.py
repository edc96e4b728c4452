"""Data tables of a run: one row per step, evaluation, update or event.

Column names end with the unit. Times are seconds of virtual time since the event `run_start`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import pandas as pd

from analysis.reading.damage import FileProblem, find_run_file_damage, find_trial_file_damage
from analysis.reading.log_tables import (
    build_evaluation_table,
    build_event_table,
    build_node_table,
    build_param_hash_table,
    build_step_table,
)
from analysis.reading.logs import mllog
from analysis.reading.logs.batches import read_logged_rows, rows_to_data_frame
from analysis.reading.logs.bucket_exchanges import read_bucket_exchanges
from analysis.reading.logs.collectives import read_collectives
from analysis.reading.logs.connections import ConnectionBreak, read_connection_breaks
from analysis.reading.logs.consensus import read_consensus
from analysis.reading.logs.continued_logs import find_continued_attempt, join_logs
from analysis.reading.logs.membership import MembershipLog, read_membership
from analysis.reading.logs.message_problems import MessageProblem, read_message_problems
from analysis.reading.logs.mllog import NodeLog
from analysis.reading.logs.process_bytes import ProcessBytes, read_process_bytes
from analysis.reading.logs.switch_record import StrategySwitchRecord, read_strategy_switch
from analysis.reading.plan_view import TrialPlan, read_plan
from analysis.reading.run_folder import RunFolder, TrialFolder, read_json
from analysis.reading.trial_status import validate_trial_status
from services.learning.sample_pictures import SamplePictures, read_sample_pictures
from services.runtime.run_log import UPDATE_COLUMNS

STEP_PHASES = ("data", "compute", "exchange", "wait", "update")


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
    - `membership`: lost nodes, membership epochs, recoveries, and checkpoints that were written or failed.
    - `process_bytes`: payload bytes that each process of each node logged.
    - `connection_breaks`: connections that ended early, and when others replaced them.
    - `message_problems`: refused connections and messages, and messages that an event corrupted.
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
    membership: MembershipLog = field(default_factory=MembershipLog)
    process_bytes: tuple[ProcessBytes, ...] = ()
    connection_breaks: tuple[ConnectionBreak, ...] = ()
    message_problems: tuple[MessageProblem, ...] = ()
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
    """Read the logs of all nodes of a trial; return them by node name.

    If the trial continues an interrupted attempt, they include the log of the attempt up to the checkpoint.
    """
    logs = {path.stem: mllog.read_log(path) for path in trial_folder.log_paths}
    attempt = find_continued_attempt(logs)
    if attempt is None:
        return logs
    earlier = trial_folder.find_attempt(attempt.folder)
    return join_logs(read_node_logs(earlier) if earlier else {}, logs, attempt)


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
    steps, unusable_batches = build_step_table(plan, switch_record, log_by_node_name, zero_s)
    first_owner = next(iter(plan.shard_owners), "")
    first_owner_log = log_by_node_name.get(first_owner, NodeLog(()))
    rows, unusable_updates = read_logged_rows(first_owner_log, "shard_updates", UPDATE_COLUMNS, UPDATE_COLUMNS)
    switch_s = switch_record.second_strategy_start_s if switch_record else inf
    buckets, unusable_buckets = read_bucket_exchanges(log_by_node_name, zero_s, plan.strategy, switch_s)
    for name, lines in (*unusable_buckets.items(), (first_owner, unusable_updates)):
        unusable_batches[name] = (*unusable_batches.get(name, ()), *lines)
    updates = rows_to_data_frame(rows, UPDATE_COLUMNS)
    evals = build_evaluation_table(coordinator_log, zero_s)
    return TrialLogTables(
        plan=plan,
        status=status,
        steps=steps,
        evals=evals,
        updates=updates.assign(time_s=updates["time_s"].astype(float) - zero_s),
        parameter_hashes=build_param_hash_table(log_by_node_name),
        nodes=build_node_table(log_by_node_name),
        events=build_event_table(log_by_node_name, trial_folder.link_events_path),
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
        membership=read_membership(log_by_node_name, zero_s),
        process_bytes=read_process_bytes(log_by_node_name),
        connection_breaks=read_connection_breaks(log_by_node_name, zero_s),
        message_problems=read_message_problems(log_by_node_name, zero_s),
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


def _concatenate_trial_frames(frames_by_trial: Iterable[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Return the data frames of all trials as one frame, with the trial's name in the column `trial`."""
    with_trial = [frame.assign(trial=trial_name) for trial_name, frame in frames_by_trial if not frame.empty]
    return pd.concat(with_trial, ignore_index=True) if with_trial else pd.DataFrame()
