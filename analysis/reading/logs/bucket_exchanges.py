"""Exchanges of gradient buckets that workers logged, with the names of the arrays in each bucket."""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
import pandas as pd

from analysis.reading.logs.batches import read_logged_rows, rows_to_data_frame
from analysis.reading.logs.mllog import NodeLog, UnusableLogLine
from services.runtime.run_log import BUCKET_COLUMNS

ARRAY_SEPARATOR = ", "


def read_bucket_exchanges(
    log_by_node_name: Mapping[str, NodeLog],
    start_s: float,
    strategy: Mapping[str, Any],
    second_strategy_start_s: float = inf,
) -> tuple[pd.DataFrame, dict[str, tuple[UnusableLogLine, ...]]]:
    """Return a row per worker and exchanged part of a gradient bucket, and the unusable log lines by node name.

    The columns are `node`, BUCKET_COLUMNS, with times in seconds since `start_s`, and `arrays`: names of the model's
    arrays in the bucket. The table is empty if no exchange overlapped with compute.

    Args:
        log_by_node_name: logs of the nodes.
        start_s: begin of the training on the clock of the logs.
        strategy: the strategy in the plan of the trial.
        second_strategy_start_s: seconds from `start_s` to the begin of the second strategy, if training switches.
    """
    names = sorted(name for name, log in log_by_node_name.items() if log.events_with_key("node_buckets"))
    read = {
        name: read_logged_rows(log_by_node_name[name], "node_buckets", BUCKET_COLUMNS, BUCKET_COLUMNS) for name in names
    }
    rows = np.vstack([np.empty((0, len(BUCKET_COLUMNS))), *(rows for rows, _ in read.values())])
    table = rows_to_data_frame(rows, BUCKET_COLUMNS)
    row_counts = np.array([len(rows) for rows, _ in read.values()], dtype=int)
    table.insert(0, "node", np.repeat(np.array(names, dtype=object), row_counts))
    table = table.assign(**{name: table[name].astype(float) - start_s for name in ("begin_s", "end_s")})
    arrays = _array_names(table, strategy, second_strategy_start_s)
    return table.assign(arrays=arrays), {name: lines for name, (_, lines) in read.items() if lines}


def _array_names(table: pd.DataFrame, strategy: Mapping[str, Any], second_strategy_start_s: float) -> "pd.Series[str]":
    """Return the names of the arrays in the bucket of each row; empty where the plan has none."""
    first = table["bucket"].map(_names_by_bucket(strategy.get("before") or strategy))
    second = table["bucket"].map(_names_by_bucket(strategy.get("after") or {}))
    names: pd.Series[str] = first.where(table["begin_s"] < second_strategy_start_s, second).fillna("").astype(str)
    return names


def _names_by_bucket(strategy: Mapping[str, Any]) -> dict[int, str]:
    buckets = (strategy.get("overlap") or {}).get("buckets") or ()
    return {number: ARRAY_SEPARATOR.join(bucket.get("arrays") or ()) for number, bucket in enumerate(buckets)}
