"""Rows from log lines to data frame to CSV: no value is lost, moved or rounded."""

import io
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.reading.logs import mllog
from analysis.reading.logs.batches import read_logged_rows, rows_to_data_frame
from analysis.reading.trial_record import _format_csv_rows

NAMES = ("step", "start_s", "loss", "staleness")
CELL = st.none() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(st.tuples(st.permutations(NAMES), st.lists(st.tuples(*[CELL] * len(NAMES)), max_size=4)), max_size=4))
def test_rows_are_read_by_column_name_in_any_column_order(
    batches: list[tuple[list[str], list[tuple[float | None, ...]]]],
) -> None:
    lines = [_line({"columns": names, "rows": [list(row) for row in rows]}) for names, rows in batches]

    values, problems = read_logged_rows(mllog.parse_log_lines(lines), "rows", NAMES)

    expected = [[dict(zip(names, row, strict=True))[name] for name in NAMES] for names, rows in batches for row in rows]
    assert problems == ()
    assert values.shape == (len(expected), len(NAMES))
    np.testing.assert_array_equal(values, np.array(expected, dtype=float).reshape(values.shape))


def _line(value: object) -> str:
    return ":::MLLOG " + json.dumps({"time_ms": 1.0, "key": "rows", "value": value})


@given(st.lists(st.tuples(*[CELL | st.floats(-1e10, 1e10)] * len(NAMES)), min_size=1, max_size=6))
@example([(99999999.9999, 999999999.9, 1e-4, 9.99999999999e-5), (0.1234567885, 1234567885.5, 1e-9, None)])
def test_csv_rows_equal_those_of_pandas(rows: list[tuple[float | None, ...]]) -> None:
    """Our writer is many times as fast and differs only in the sign of zero, which the comparison ignores."""
    table = rows_to_data_frame(np.array(rows, dtype=float) + 0.0, NAMES)
    table.insert(0, "node", "worker-0")

    csv_text = ",".join(table.columns) + "\n" + b"".join(_format_csv_rows(table)).decode()

    assert csv_text == table.to_csv(index=False, float_format="%.9g", lineterminator="\n")


def test_one_bad_batch_does_not_affect_other_batches() -> None:
    lines = [_line({"columns": ["step"], "rows": rows}) for rows in ([[1]], [["two"]], [[3]])]

    values, (bad_line,) = read_logged_rows(mllog.parse_log_lines(lines), "rows", ("step",))

    assert values.ravel().tolist() == [1.0, 3.0]
    assert (bad_line.line_number, bad_line.problem) == (2, "rows has a value that is not a number")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (None, "rows has no lists `columns` and `rows`"),
        ("[1]", "rows has no lists `columns` and `rows`"),
        ([1.0], "rows has a row that does not have 1 values"),
        ([[1.0], []], "rows has a row that does not have 1 values"),
        ([[1.0, 2.0]], "rows has a row that does not have 1 values"),
        ([[{}]], "rows has a value that is not a number"),
        ([[10**400]], "rows has a value that is not a number"),
        ([[[1.0]]], "rows has a value that is not a number"),
        ([[[1.0, 2.0]]], "rows has a value that is not a number"),
    ],
)
def test_an_invalid_batch_is_reported_and_other_batches_are_read(rows: object, problem: str) -> None:
    lines = [_line({"columns": ["step"], "rows": batch_rows}) for batch_rows in ([[1]], rows, [], [[3]])]

    values, (bad_line,) = read_logged_rows(mllog.parse_log_lines(lines), "rows", ("step",))

    assert values.ravel().tolist() == [1.0, 3.0]
    assert (bad_line.line_number, bad_line.problem) == (2, problem)


def test_batches_are_compared_by_their_numbers() -> None:
    """Code that counts equal values of a log compares batches, too."""
    first, same, other, named = (
        mllog.parse_log_lines([_line({"columns": [name, "b"], "rows": [[1, None], [3, last]]})]).events[0]
        for name, last in (("a", 4), ("a", 4.0), ("a", 5), ("c", 4))
    )

    assert first == same
    assert first not in (other, named)
    assert first.value != {"columns": ["a", "b"], "rows": [[1, None], [3, 4]]}


def test_counts_are_integers_and_seconds_are_floats() -> None:
    table = rows_to_data_frame(np.array([[1.0, 2.0, 3.0, math.nan]]), NAMES)

    assert [str(table[name].dtype) for name in NAMES] == ["int64", "float64", "float64", "float64"]
    assert pd.read_csv(io.StringIO(table.to_csv(index=False))).equals(table)
