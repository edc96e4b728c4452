"""Logs of a trial that continues an interrupted attempt: the log of the attempt up to the checkpoint, and its own.

Times of the earlier attempt are moved, so that the checkpoint is complete when the training continues. Steps after the
checkpoint, and evaluations at its step or later, are left out: the trial has repeated them.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from analysis.reading.logs.mllog import MllogEvent, NodeLog, parse_log_lines
from services.runtime.run_log import LOG_LINE_PREFIX

COORDINATOR = "coordinator"
CONTINUED = "training_continued"
CHECKPOINT_COMPLETE = "checkpoint_complete"
STEP_COLUMN = {"node_steps": "step", "node_buckets": "step", "shard_updates": "push_step", "shard_drops": "push_step"}
TIME_COLUMNS = frozenset({"start_s", "begin_s", "end_s", "time_s"})  # of logged rows; seconds on the clock of the log
INTERVAL_STARTS = ("epoch_start", "block_start")
EPOCH_KEYS = ("membership_epoch", "membership_recovery", "recovery")  # events whose value has a membership epoch


DAMAGED_EVENT_ERRORS = (KeyError, ValueError, TypeError, AttributeError, IndexError)


class ContinuedAttempt(NamedTuple):
    """Interrupted attempt that a trial continues, as the coordinator of the trial has logged it."""

    folder: str  # in the run folder
    step: int  # of the checkpoint


def find_continued_attempt(logs: Mapping[str, NodeLog]) -> ContinuedAttempt | None:
    """Return the interrupted attempt at the same trial that a trial continues; None if there is none."""
    event = logs.get(COORDINATOR, NodeLog(())).last_event(CONTINUED)
    if event is None or not isinstance(event.value, dict) or not event.value.get("is_attempt"):
        return None
    step = int(event.metadata.get("step") or 0)
    return ContinuedAttempt(str(event.value.get("folder")), step) if step else None


def join_logs(earlier: Mapping[str, NodeLog], logs: Mapping[str, NodeLog], step: int) -> dict[str, NodeLog]:
    """Return the logs of a trial that continues an attempt from the checkpoint of a step.

    Args:
        earlier: logs of the interrupted attempt, by node.
        logs: logs of the trial, by node.
        step: step of the checkpoint.
    """
    start = logs[COORDINATOR].last_event("run_start")
    checkpoint_ms = _find_checkpoint_time_ms(earlier.get(COORDINATOR, NodeLog(())), step)
    if start is None or checkpoint_ms is None:
        return dict(logs)
    shift_ms = start.time_ms - checkpoint_ms
    first_epoch = _find_last_epoch(earlier[COORDINATOR], checkpoint_ms)
    joined = {}
    for name, log in logs.items():
        is_coordinator = name == COORDINATOR
        before = _cut_log(earlier.get(name, NodeLog(())), checkpoint_ms, shift_ms, step)
        after = _events_after_start(log, start, before) if is_coordinator else log.events
        numbered = (replace(event, line_number=-number) for number, event in enumerate(before, start=1))
        later = (_count_epochs_from(event, first_epoch) for event in after)
        joined[name] = NodeLog((*numbered, *later), log.unusable_lines)
    return joined


def _find_checkpoint_time_ms(coordinator_log: NodeLog, step: int) -> float | None:
    """Return the time at which the checkpoint of a step was complete, or at which the attempt began with it."""
    times = [
        event.time_ms
        for event in coordinator_log.events
        if event.key in (CHECKPOINT_COMPLETE, CONTINUED) and event.metadata.get("step") == step
    ]
    return times[-1] if times else None


def _find_last_epoch(coordinator_log: NodeLog, end_ms: float) -> int:
    """Return the number of the last membership epoch that began before a time; 0 for the first one."""
    begun = (event for event in coordinator_log.events_with_key("membership_epoch") if event.time_ms <= end_ms)
    return max((int(event.value["epoch"]) for event in begun), default=0)


def _cut_log(log: NodeLog, end_ms: float, shift_ms: float, step: int) -> tuple[MllogEvent, ...]:
    """Return the events of a node before the checkpoint, with moved times."""
    texts: list[str] = []
    for event in log.events:
        with suppress(*DAMAGED_EVENT_ERRORS):  # missing steps are damage of the trial, which its number of steps shows
            texts.append(_cut_event(event, end_ms, shift_ms, step))
    return parse_log_lines(f"{LOG_LINE_PREFIX}{text}" for text in texts if text).events


def _cut_event(event: MllogEvent, end_ms: float, shift_ms: float, step: int) -> str:
    """Return the JSON text of an event before the checkpoint, with moved times; empty for a later event."""
    content: dict[str, Any] = json.loads(event.json_text)
    content["time_ms"] = round(event.time_ms + shift_ms, 3)
    if event.key in STEP_COLUMN:  # rows are logged some time after their steps
        content["value"] = _cut_rows(content["value"], STEP_COLUMN[event.key], shift_ms / 1e3, step)
        return json.dumps(content) if content["value"]["rows"] else ""
    is_repeated = event.key not in ("checkpoint", CHECKPOINT_COMPLETE) and _is_of_step(event, step)
    return "" if event.time_ms > end_ms or is_repeated else json.dumps(content)


def _is_of_step(event: MllogEvent, step: int) -> bool:
    """Return whether the trial repeats an event, because it belongs to the step of the checkpoint or to a later one."""
    return bool(event.metadata.get("step", -1) >= step)


def _cut_rows(table: dict[str, Any], step_column: str, shift_s: float, step: int) -> dict[str, Any]:
    """Return logged rows of the steps before the checkpoint, with moved times."""
    columns: list[str] = table["columns"]
    moved = [number for number, name in enumerate(columns) if name in TIME_COLUMNS]
    position = columns.index(step_column)
    rows = [list(row) for row in table["rows"] if row[position] < step]
    for row in rows:
        for number in moved:
            row[number] = round(row[number] + shift_s, 6)
    return {"columns": columns, "rows": rows}


def _events_after_start(log: NodeLog, start: MllogEvent, before: tuple[MllogEvent, ...]) -> Iterator[MllogEvent]:
    """Yield the events of the coordinator after the start of training, which the earlier log has.

    The first training interval continues one that the earlier log has begun.
    """
    begun = [event.key for event in before if event.key in (*INTERVAL_STARTS, "epoch_stop", "block_stop")]
    is_open = bool(begun) and begun[-1] in INTERVAL_STARTS
    events = log.events[log.events.index(start) + 1 :]
    first = next((event for event in events if event.key in INTERVAL_STARTS), None)
    return (event for event in events if not (is_open and event is first))


def _count_epochs_from(event: MllogEvent, first_epoch: int) -> MllogEvent:
    """Return an event whose membership epoch is counted from that of the earlier attempt on."""
    if not first_epoch or event.key not in EPOCH_KEYS:
        return event
    content: dict[str, Any] = json.loads(event.json_text)
    content["value"]["epoch"] += first_epoch
    return replace(event, value=content["value"], json_text=json.dumps(content))
