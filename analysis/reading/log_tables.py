"""Tables of one trial, built from the log lines of its nodes: steps, evaluations, hashes, nodes and events."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.reading.logs.batches import read_logged_rows, rows_to_data_frame
from analysis.reading.logs.mllog import NodeLog, UnusableLogLine
from analysis.reading.logs.switch_record import StrategySwitchRecord
from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_folder import parse_json_object
from analysis.reading.waiting import separate_straggler_wait
from services.runtime.run_log import STEP_COLUMNS

READ_STEP_COLUMNS = tuple(column for column in STEP_COLUMNS if column not in {"forward_s", "backward_s"})
OPTIONAL_STEP_COLUMNS = {  # may be unknown
    *("epoch", "wait_s", "late_s", "messages_sent", "staleness", "hidden_s", "early_s"),
}
REQUIRED_STEP_COLUMNS = tuple(column for column in READ_STEP_COLUMNS if column not in OPTIONAL_STEP_COLUMNS)
EVENT_COLUMNS = ("number", "kind", "phase", "nodes", "planned_s", "applied_s", "lateness_s", "by")
NODE_COUNTERS = ("payload_bytes_sent", "messages_sent", "deadlines", "missed_deadlines")  # in `node_stop`
EVAL_COLUMNS = ("time_s", "epoch", "samples", "step", "metric", "value", "duration_s")


def build_step_table(
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


def build_evaluation_table(coordinator_log: NodeLog, start_s: float) -> pd.DataFrame:
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


def build_param_hash_table(log_by_node_name: Mapping[str, NodeLog]) -> pd.DataFrame:
    """Return a table with one row per logged digest of a node's parameters."""
    rows = [
        (node_name, event.metadata.get("step"), event.value)
        for node_name, log in log_by_node_name.items()
        for event in log.events_with_key("node_hash")
    ]
    if not_text := next((value for _, _, value in rows if not isinstance(value, str)), None):
        raise TypeError(f"node_hash: value should be text, not {not_text!r:.40}")
    return _convert_to_numbers(pd.DataFrame(rows, columns=["node", "step", "sha256"]), ("step",))


def build_node_table(log_by_node_name: Mapping[str, NodeLog]) -> pd.DataFrame:
    """Return a table with one row per node: facts about its process, and its totals."""
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


def build_event_table(log_by_node_name: Mapping[str, NodeLog], link_events_path: Path) -> pd.DataFrame:
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
