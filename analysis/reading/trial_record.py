"""Writer of result.txt (merged log lines) and steps.csv (one row per worker and step).

Both files are made from the node logs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
from numpy.typing import NDArray

from analysis.reading.logs.mllog import NodeLog
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import TrialLogTables, read_node_logs

SIGNIFICANT_DIGITS = 9
PLAIN_RANGE = (1e-4, 1e8)  # absolute values that `%.9g` writes without an exponent, also after rounding
POWERS_OF_TEN = np.array([float(f"1e{place}") for place in range(SIGNIFICANT_DIGITS + 4)])
TIE_TOLERANCE = 1e-6  # in units of the last digit; products of this size are exact within 6e-8


def write_log_and_step_table(
    trial_folder: TrialFolder, trial_tables: TrialLogTables, node_logs: Mapping[str, NodeLog] | None = None
) -> None:
    """Write result.txt and steps.csv of one trial, and collectives.csv of a user's command.

    The logs are read if they are not given. Writing the same trial again gives the same bytes.
    """
    write_merged_log(trial_folder, read_node_logs(trial_folder) if node_logs is None else node_logs)
    write_step_csv(trial_folder, trial_tables)
    if len(trial_tables.collectives):
        trial_tables.collectives.to_csv(trial_folder.collective_csv_path, index=False, float_format="%.9g")


def write_merged_log(trial_folder: TrialFolder, node_logs: Mapping[str, NodeLog]) -> Path:
    """Write the merged log lines of all nodes to result.txt, and return the path of the file."""
    with trial_folder.merged_log_path.open("w", encoding="utf-8") as result:
        result.writelines(merge_log_lines(node_logs))
    return trial_folder.merged_log_path


def merge_log_lines(node_logs: Mapping[str, NodeLog]) -> Iterator[str]:
    """Return the log lines of all nodes, sorted by time.

    MLCommons' compliance checker accepts the merged log: only the coordinator prints the keys that it requires. The
    sort is stable and `coordinator` is the first name, so lines of the same time keep a fixed order.
    """
    events = [event for _, log in sorted(node_logs.items()) for event in log.events]
    events.sort(key=lambda event: event.time_ms)
    return (f"{event.format_line()}\n" for event in events)


def write_step_csv(trial_folder: TrialFolder, trial_tables: TrialLogTables) -> Path:
    """Write steps.csv with one row per worker and step, in the order of ranks.

    Times are in virtual seconds. Return the path of the file.
    """
    steps = trial_tables.steps.sort_values(["rank", "step"], kind="stable")
    with trial_folder.step_csv_path.open("wb") as file:
        file.write(",".join(steps.columns).encode() + b"\n")
        file.writelines(_format_csv_rows(steps))
    return trial_folder.step_csv_path


def _format_csv_rows(step_table: pd.DataFrame) -> Iterator[bytes]:
    """Yield the CSV rows of each worker as one text.

    Numbers have nine significant digits. An unknown value is empty. A CSV row is what a JSON array has between its
    brackets, so orjson writes the rows; `to_csv` takes twenty times as long.
    """
    node_columns = [name for name in ("node", "rank") if name in step_table]
    columns = [_format_csv_column(step_table[name].to_numpy()) for name in step_table.columns.drop(node_columns)]
    rows = list(zip(*_join_constant_columns(columns, len(step_table)), strict=True))
    begins = np.flatnonzero(step_table["node"].ne(step_table["node"].shift())).tolist()
    for begin, end in pairwise([*begins, len(step_table)]):
        prefix = "".join(f"{step_table[name].iloc[begin]}," for name in node_columns).encode()
        text = orjson.dumps(rows[begin:end])[2:-2].replace(b"],[", b"\n" + prefix)
        yield prefix + text.translate(None, b'"') + b"\n"


def _join_constant_columns(csv_columns_or_constants: Sequence[list[Any] | str], row_count: int) -> Iterator[list[Any]]:
    """Yield the columns of a CSV table, with neighbouring constant columns joined.

    Neighbouring columns that are each constant are joined into one text column.
    """
    constants: list[str] = []
    for cells in csv_columns_or_constants:
        if isinstance(cells, str):
            constants.append(cells)
            continue
        if constants:
            yield [",".join(constants)] * row_count
            constants = []
        yield cells
    if constants:
        yield [",".join(constants)] * row_count


def _format_csv_column(values: NDArray[Any]) -> list[Any] | str:
    """Return the cells of a CSV column as numbers or texts.

    They are numbers where JSON writes them as the format `%.9g` does, otherwise texts. A column with one constant value
    is returned as a single text. Why a rounded number may stay a number: the quotient of two integers that floats
    represent exactly is the float nearest to that decimal (IEEE 754, division).
    """
    if len(values) and np.array_equal(values, np.full_like(values, values[0]), equal_nan=True):
        return _format_number(values[0].item())
    if values.dtype.kind != "f":
        return list(values.tolist())
    sizes = np.abs(values)
    is_plain = (sizes >= PLAIN_RANGE[0]) & (sizes < PLAIN_RANGE[1])
    exponents = np.floor(np.log10(sizes, where=is_plain, out=np.zeros_like(sizes))).astype(int)
    scale = POWERS_OF_TEN[SIGNIFICANT_DIGITS - 1 - exponents]
    scaled = values * scale
    rounded = np.rint(scaled) / scale
    with np.errstate(invalid="ignore"):  # losses of training that diverged are infinite
        is_tie = np.abs(np.abs(scaled - np.rint(scaled)) - 0.5) < TIE_TOLERANCE  # too inexact a product to round these
    cells: list[Any] = rounded.tolist()
    for row in np.flatnonzero(~is_plain | is_tie | (rounded == np.rint(rounded))).tolist():
        cells[row] = _format_number(values[row])
    return cells


def _format_number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "" if isnan(value) else f"{value:.9g}"
