"""Does a trial's log explain what its servers held at the end? Replays a trial from its folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis.reading import mllog
from analysis.reading.batches import read_row_batches
from analysis.reading.run_folder import TrialFolder
from replay import Arrivals, Course, replay
from replay.base import Row
from services.plan import COORDINATOR, Plan
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError

PUSH_COLUMNS = ("version", "worker", "push_step", "staleness", "samples")


def replay_trial(folder: TrialFolder) -> HostArray:
    """The parameters, shape (parameters,), that the trial must have ended with; `params_sha256` is their digest.

    Raises:
        UserError: `none` and `local_sgd`, or a number format that remembers what it has sent.
        ProtocolError: the logs contradict themselves, or a line is cut off or lacks what a replay needs.
    """
    plan = Plan.model_validate_json(folder.plan_path.read_bytes())
    arrivals = [_arrivals(folder.log_path(holder)) for holder in plan.shard_owners]
    return replay(plan, arrivals, _course(plan, folder))


def _course(plan: Plan, folder: TrialFolder) -> Course:
    steps = (_steps(folder.log_path(node.name)) for node in plan.node_plans_of_role("worker"))
    committed = [
        event.value for event in mllog.read_log(folder.log_path(COORDINATOR)).events_with_key("switch_committed")
    ]
    return Course(
        ends=[max((row["step"] + 1 for row in rows), default=0) for rows in steps],
        switched=committed[0]["step"] if committed else None,
    )


def _arrivals(log: Path) -> Arrivals:
    read = mllog.read_log(log)
    return Arrivals(*(_rows(log, read, key, PUSH_COLUMNS) for key in ("shard_updates", "shard_drops")))


def _steps(log: Path) -> list[Row]:
    return _rows(log, mllog.read_log(log), "node_steps", ("step",))


def _rows(path: Path, log: mllog.NodeLog, key: str, columns: Sequence[str]) -> list[Row]:
    """By column, every one a whole number; `path` is for whoever has to look."""
    values, odd = read_row_batches(log, key, columns, columns)
    if told := [*log.unusable_lines, *odd]:
        raise ProtocolError(f"{path.name}:{told[0].line_number}: {told[0].problem}")
    if np.isnan(values).any():
        raise ProtocolError(f"{path.name}: {key} with null in one of {', '.join(columns)}")
    return [dict(zip(columns, map(int, row), strict=True)) for row in values]
