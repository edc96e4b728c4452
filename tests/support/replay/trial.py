"""Replay of a trial from its folder, to check that its logs determine its final parameters."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis.reading.logs import mllog
from analysis.reading.logs.batches import read_logged_rows
from analysis.reading.run_folder import TrialFolder
from replay import ShardArrivals, TrialProgress, replay
from replay.base import Row
from services.plan import COORDINATOR, Plan, decode_plan
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError

PUSH_COLUMNS = ("version", "worker", "push_step", "staleness", "samples")


def replay_trial(folder: TrialFolder) -> HostArray:
    """Return the expected final parameters of the trial, shape (parameters,); `params_sha256` is their digest.

    Raises:
        UserError: the strategy is `none` or `local_sgd`, or its compressor has a state.
        ProtocolError: the logs contradict themselves, or a line is cut off or lacks a column.
    """
    plan = decode_plan(folder.plan_path.read_bytes())
    arrivals = [_arrivals(folder.log_path(owner)) for owner in plan.shard_owners]
    return replay(plan, arrivals, _progress(plan, folder))


def _progress(plan: Plan, folder: TrialFolder) -> TrialProgress:
    steps = (_worker_steps(folder.log_path(node.name)) for node in plan.node_plans_of_role("worker"))
    committed = [
        event.value for event in mllog.read_log(folder.log_path(COORDINATOR)).events_with_key("switch_committed")
    ]
    return TrialProgress(
        end_steps=[max((row["step"] + 1 for row in rows), default=0) for rows in steps],
        switch_step=committed[0]["step"] if committed else None,
    )


def _arrivals(log: Path) -> ShardArrivals:
    node_log = mllog.read_log(log)
    return ShardArrivals(*(_rows(log, node_log, key, PUSH_COLUMNS) for key in ("shard_updates", "shard_drops")))


def _worker_steps(log: Path) -> list[Row]:
    return _rows(log, mllog.read_log(log), "node_steps", ("step",))


def _rows(path: Path, log: mllog.NodeLog, key: str, columns: Sequence[str]) -> list[Row]:
    """Return all rows by column, with whole numbers as values; error messages name the file of `path`."""
    values, unusable_rows = read_logged_rows(log, key, columns, columns)
    if problems := [*log.unusable_lines, *unusable_rows]:
        raise ProtocolError(f"{path.name}:{problems[0].line_number}: {problems[0].problem}")
    if np.isnan(values).any():
        raise ProtocolError(f"{path.name}: {key} with null in one of {', '.join(columns)}")
    return [dict(zip(columns, map(int, row), strict=True)) for row in values]
