"""Conversion of logged rows of numbers to arrays and data frames.

Log lines that cannot be used are listed.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.reading.logs.mllog import MllogEvent, MllogTable, NodeLog, UnusableLogLine, decode_logged_table_rows
from analysis.statistics.centre import Floats

INTEGER_COLUMNS = frozenset(
    {
        *("step", "epoch", "samples", "bytes_sent", "messages_sent", "staleness", "version", "worker", "push_step"),
        *("bucket", "part"),
    }
)
INT64_LIMIT = 2.0**63  # larger than every int64; a comparison with NaN is false


def read_logged_rows(
    node_log: NodeLog, event_key: str, wanted_columns: Sequence[str], required_columns: Sequence[str] = ()
) -> tuple[Floats, tuple[UnusableLogLine, ...]]:
    """Return the rows of numbers that a node logged, and the log lines that cannot be used.

    Only events with the key `event_key` are read. The array has shape (rows, columns), with NaN for values that were
    not logged. A batch names its columns, in any order; nodes of another version may log other columns. A batch is left
    out and reported if it lacks a required column, has rows of different length, or has a value that NumPy cannot
    convert to a number.
    """
    decoded = {
        event.line_number: _decode_event_rows(event, required_columns) for event in node_log.events_with_key(event_key)
    }
    unusable = tuple(
        UnusableLogLine(number, f"{event_key} {problem}")
        for number, problem in decoded.items()
        if isinstance(problem, str)
    )
    usable = [batch for batch in decoded.values() if isinstance(batch, MllogTable)]
    runs = groupby(usable, key=lambda batch: batch.columns)
    parts = [_select_columns(names, np.vstack([batch.rows for batch in run]), wanted_columns) for names, run in runs]
    return np.vstack(parts) if parts else np.empty((0, len(wanted_columns))), unusable


def rows_to_data_frame(rows: Floats, column_names: Sequence[str]) -> pd.DataFrame:
    """Return rows of numbers as a data frame.

    Columns in INTEGER_COLUMNS are int64 if all their values are known.
    """
    named = zip(column_names, np.ascontiguousarray(rows.T), strict=True)
    table = {name: _as_integers_if_whole(numbers) if name in INTEGER_COLUMNS else numbers for name, numbers in named}
    return pd.DataFrame(table)


def _decode_event_rows(event: MllogEvent, required_columns: Sequence[str]) -> MllogTable | str:
    """Return the rows of numbers in a log event, or a text that says why they cannot be used."""
    try:
        batch = event.value if isinstance(event.value, MllogTable) else decode_logged_table_rows(event.value)
    except ValueError as error:
        return str(error)
    missing = [name for name in required_columns if name not in batch.columns]
    return f"has no {', '.join(missing)}: logged by another version" if missing else batch


def _select_columns(logged_columns: Sequence[str], logged_rows: Floats, wanted_columns: Sequence[str]) -> Floats:
    """Return the wanted columns of logged rows as an array of shape (rows, wanted columns).

    A column that the batch lacks is NaN.
    """
    unknown = np.full((len(logged_rows), 1), np.nan)
    column_indices = [
        logged_columns.index(name) if name in logged_columns else len(logged_columns) for name in wanted_columns
    ]
    return np.asarray(np.hstack([logged_rows, unknown])[:, column_indices])


def _as_integers_if_whole(numbers: Floats) -> NDArray[Any]:
    """Return the numbers as int64 if all of them are known whole numbers, else unchanged."""
    is_whole = len(numbers) > 0 and bool((np.abs(numbers) < INT64_LIMIT).all() and (numbers == np.rint(numbers)).all())
    return numbers.astype("int64") if is_whole else numbers
