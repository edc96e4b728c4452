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
    samples: int  # that all workers had used before the checkpoint


def find_continued_attempt(logs: Mapping[str, NodeLog]) -> ContinuedAttempt | None:
    """Return the interrupted attempt at the same trial that a trial continues; None if there is none."""
    event = logs.get(COORDINATOR, NodeLog(())).last_event(CONTINUED)
    if event is None or not isinstance(event.value, dict) or not event.value.get("is_attempt"):
        return None
    step, samples = (int(event.metadata.get(key) or 0) for key in ("step", "samples_count"))
    return ContinuedAttempt(str(event.value.get("folder")), step, samples) if step else None


class LogCut(NamedTuple):
    """Checkpoint at which the log of an interrupted attempt is cut, and by which its times are moved."""

    attempt: ContinuedAttempt
    end_ms: float  # time at which the checkpoint was complete
    shift_ms: float

    def is_repeated(self, event: MllogEvent) -> bool:
        """Return whether the trial repeats an event: an evaluation at the step of the checkpoint, or a later event."""
        if event.time_ms > self.end_ms:
            return True
        if event.key in ("checkpoint", CHECKPOINT_COMPLETE):
            return False
        metadata = event.metadata
        is_later = metadata.get("step", -1) >= self.attempt.step
        return bool(is_later or metadata.get("samples_count", -1) >= self.attempt.samples)


def join_logs(
    earlier: Mapping[str, NodeLog], logs: Mapping[str, NodeLog], attempt: ContinuedAttempt
) -> dict[str, NodeLog]:
    """Return the logs of a trial that continues an interrupted attempt from a checkpoint.

    Args:
        earlier: logs of the interrupted attempt, by node.
        logs: logs of the trial, by node.
        attempt: the attempt, and the step of the checkpoint.
    """
    start = logs[COORDINATOR].last_event("run_start")
    checkpoint_ms = _find_checkpoint_time_ms(earlier, attempt.step)
    if start is None or checkpoint_ms is None:
        return dict(logs)
    cut = LogCut(attempt, checkpoint_ms, start.time_ms - checkpoint_ms)
    first_epoch = _find_last_epoch(earlier.get(COORDINATOR, NodeLog(())), checkpoint_ms)
    joined = {}
    for name, log in logs.items():
        is_coordinator = name == COORDINATOR
        before = _cut_log(earlier.get(name, NodeLog(())), cut)
        after = _events_after_start(log, start, before) if is_coordinator else log.events
        numbered = (replace(event, line_number=-number) for number, event in enumerate(before, start=1))
        later = (_count_epochs_from(event, first_epoch) for event in after)
        joined[name] = NodeLog((*numbered, *later), log.unusable_lines)
    return joined


def _find_checkpoint_time_ms(logs: Mapping[str, NodeLog], step: int) -> float | None:
    """Return the time at which the checkpoint of a step was complete, or at which the attempt began with it.

    If the attempt was interrupted after the manifest was written, and before the coordinator has logged this, it is the
    time at which the last node had written its file.
    """
    coordinator_events = logs.get(COORDINATOR, NodeLog(())).events
    times = [
        event.time_ms
        for event in coordinator_events
        if event.key in (CHECKPOINT_COMPLETE, CONTINUED) and event.metadata.get("step") == step
    ]
    written = (event for log in logs.values() for event in log.events_with_key("checkpoint"))
    written_ms = (event.time_ms for event in written if event.metadata.get("step") == step)
    return times[-1] if times else max(written_ms, default=None)


def _find_last_epoch(coordinator_log: NodeLog, end_ms: float) -> int:
    """Return the number of the last membership epoch that began before a time; 0 for the first one."""
    begun = (event for event in coordinator_log.events_with_key("membership_epoch") if event.time_ms <= end_ms)
    return max((int(event.value["epoch"]) for event in begun), default=0)


def _cut_log(log: NodeLog, cut: LogCut) -> tuple[MllogEvent, ...]:
    """Return the events of a node before the checkpoint, with moved times."""
    texts: list[str] = []
    for event in log.events:
        with suppress(*DAMAGED_EVENT_ERRORS):  # missing steps are damage of the trial, which its number of steps shows
            texts.append(_cut_event(event, cut))
    return parse_log_lines(f"{LOG_LINE_PREFIX}{text}" for text in texts if text).events


def _cut_event(event: MllogEvent, cut: LogCut) -> str:
    """Return the JSON text of an event before the checkpoint, with moved times; empty for a later event."""
    content: dict[str, Any] = json.loads(event.json_text)
    content["time_ms"] = round(event.time_ms + cut.shift_ms, 3)
    if event.key in STEP_COLUMN:  # rows are logged some time after their steps
        content["value"] = _cut_rows(content["value"], STEP_COLUMN[event.key], cut)
        return json.dumps(content) if content["value"]["rows"] else ""
    return "" if cut.is_repeated(event) else json.dumps(content)


def _cut_rows(table: dict[str, Any], step_column: str, cut: LogCut) -> dict[str, Any]:
    """Return logged rows of the steps before the checkpoint, with moved times."""
    columns: list[str] = table["columns"]
    times = [number for number, name in enumerate(columns) if name in TIME_COLUMNS]
    step, end_s = columns.index(step_column), cut.end_ms / 1e3
    is_before = (row[step] < cut.attempt.step and row[times[0]] <= end_s for row in table["rows"])
    rows = [list(row) for row, is_kept in zip(table["rows"], is_before, strict=True) if is_kept]
    for row in rows:
        for number in times:
            row[number] = round(row[number] + cut.shift_ms / 1e3, 6)
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
