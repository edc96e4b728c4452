"""What is the record of a trial? result.txt and steps.csv, made from what the nodes printed."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
from numpy.typing import NDArray

from analysis.reading.mllog import Log
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import TrialTable, read_logs

DIGITS = 9
PLAIN = (1e-4, 1e8)  # sizes of numbers that `%.9g` writes without an exponent, also once rounded
EXACT_TENS = np.array([float(f"1e{place}") for place in range(DIGITS + 4)])
TIE = 1e-6  # of the last digit; products of this size are right within 6e-8


def write(folder: TrialFolder, trial: TrialTable, logs: Mapping[str, Log] | None = None) -> None:
    """Writes both files of one trial, from `logs` where they have been read; again gives the same bytes."""
    write_result(folder, read_logs(folder) if logs is None else logs)
    write_steps(folder, trial)


def write_result(folder: TrialFolder, logs: Mapping[str, Log]) -> Path:
    """Writes `merged`."""
    with folder.result.open("w", encoding="utf-8") as result:
        result.writelines(merged(logs))
    return folder.result


def merged(logs: Mapping[str, Log]) -> Iterator[str]:
    """All nodes' lines sorted by time: only the coordinator prints the full key set, so the checker accepts the merge.

    The sort is stable and `coordinator` comes first by name, so lines of one moment keep a fixed order.
    """
    events = [event for _, log in sorted(logs.items()) for event in log.events]
    events.sort(key=lambda event: event.time_ms)
    return (f"{event.line()}\n" for event in events)


def write_steps(folder: TrialFolder, trial: TrialTable) -> Path:
    """One row per worker and step, by rank; virtual seconds."""
    steps = trial.steps.sort_values(["rank", "step"], kind="stable")
    with folder.steps.open("wb") as file:
        file.write(",".join(steps.columns).encode() + b"\n")
        file.writelines(_rows(steps))
    return folder.steps


def _rows(steps: pd.DataFrame) -> Iterator[bytes]:
    """Lines of CSV, a worker's together: nine digits, nothing where a value is unknown.

    They are what JSON's arrays have between their brackets, written by Rust; `to_csv` takes twenty times as long.
    """
    named = [name for name in ("node", "rank") if name in steps]
    columns = [_cells(steps[name].to_numpy()) for name in steps.columns.drop(named)]
    rows = list(zip(*_joined(columns, len(steps)), strict=True))
    begins = np.flatnonzero(steps["node"].ne(steps["node"].shift())).tolist()
    for begin, end in pairwise([*begins, len(steps)]):
        prefix = "".join(f"{steps[name].iloc[begin]}," for name in named).encode()
        text = orjson.dumps(rows[begin:end])[2:-2].replace(b"],[", b"\n" + prefix)
        yield prefix + text.translate(None, b'"') + b"\n"


def _joined(columns: Sequence[list[Any] | str], count: int) -> Iterator[list[Any]]:
    """Neighbouring columns that hold one value throughout become one column of text."""
    alike: list[str] = []
    for cells in columns:
        if isinstance(cells, str):
            alike.append(cells)
            continue
        if alike:
            yield [",".join(alike)] * count
            alike = []
        yield cells
    if alike:
        yield [",".join(alike)] * count


def _cells(values: NDArray[Any]) -> list[Any] | str:
    """Numbers that JSON writes as `%.9g` does, the others as text; one text for a column of one value throughout.

    A quotient of two integers that floats hold exactly is the float next to that decimal (IEEE 754, division).
    """
    if len(values) and np.array_equal(values, np.full_like(values, values[0]), equal_nan=True):
        return _text(values[0].item())
    if values.dtype.kind != "f":
        return list(values.tolist())
    sizes = np.abs(values)
    plain = (sizes >= PLAIN[0]) & (sizes < PLAIN[1])
    scale = EXACT_TENS[DIGITS - 1 - np.floor(np.log10(sizes, where=plain, out=np.zeros_like(sizes))).astype(int)]
    scaled = values * scale
    found = np.rint(scaled) / scale
    tied = np.abs(np.abs(scaled - np.rint(scaled)) - 0.5) < TIE  # the product is too coarse to say where these go
    cells: list[Any] = found.tolist()
    for row in np.flatnonzero(~plain | tied | (found == np.rint(found))).tolist():
        cells[row] = _text(values[row])
    return cells


def _text(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "" if isnan(value) else f"{value:.9g}"
