"""Rows from lines to frame to CSV: nothing is lost, moved or rounded on the way."""

import io
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.reading import mllog
from analysis.reading.batches import read_row_batches, rows_to_data_frame
from analysis.reading.trial_record import _format_csv_rows

NAMES = ("step", "start_s", "loss", "staleness")
CELL = st.none() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(st.tuples(st.permutations(NAMES), st.lists(st.tuples(*[CELL] * len(NAMES)), max_size=4)), max_size=4))
def test_rows_stand_under_their_names_whatever_order_a_batch_has(
    batches: list[tuple[list[str], list[tuple[float | None, ...]]]],
) -> None:
    lines = [_line({"columns": names, "rows": [list(row) for row in rows]}) for names, rows in batches]

    found, told = read_row_batches(mllog.parse_log_lines(lines), "rows", NAMES)

    wanted = [[dict(zip(names, row, strict=True))[name] for name in NAMES] for names, rows in batches for row in rows]
    assert told == ()
    assert found.shape == (len(wanted), len(NAMES))
    np.testing.assert_array_equal(found, np.array(wanted, dtype=float).reshape(found.shape))


def _line(value: object) -> str:
    return ":::MLLOG " + json.dumps({"time_ms": 1.0, "key": "rows", "value": value})


@given(st.lists(st.tuples(*[CELL | st.floats(-1e10, 1e10)] * len(NAMES)), min_size=1, max_size=6))
@example([(99999999.9999, 999999999.9, 1e-4, 9.99999999999e-5), (0.1234567885, 1234567885.5, 1e-9, None)])
def test_csv_is_what_pandas_writes(rows: list[tuple[float | None, ...]]) -> None:
    """Ours is many times as fast, and differs in nothing but the sign of a zero, which the comparison passes over."""
    table = rows_to_data_frame(np.array(rows, dtype=float) + 0.0, NAMES)
    table.insert(0, "node", "worker-0")

    ours = ",".join(table.columns) + "\n" + b"".join(_format_csv_rows(table)).decode()

    assert ours == table.to_csv(index=False, float_format="%.9g", lineterminator="\n")


def test_one_bad_batch_costs_no_other_batch() -> None:
    lines = [_line({"columns": ["step"], "rows": rows}) for rows in ([[1]], [["two"]], [[3]])]

    found, (told,) = read_row_batches(mllog.parse_log_lines(lines), "rows", ("step",))

    assert found.ravel().tolist() == [1.0, 3.0]
    assert (told.line_number, told.problem) == (2, "rows has a value that is not a number")


@pytest.mark.parametrize(
    ("rows", "what"),
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
def test_what_is_wrong_with_a_batch_is_told_and_harms_nobody(rows: object, what: str) -> None:
    lines = [_line({"columns": ["step"], "rows": each}) for each in ([[1]], rows, [], [[3]])]

    found, (told,) = read_row_batches(mllog.parse_log_lines(lines), "rows", ("step",))

    assert found.ravel().tolist() == [1.0, 3.0]
    assert (told.line_number, told.problem) == (2, what)


def test_batches_are_compared_by_their_numbers() -> None:
    """Whoever counts equal values of a log meets them, too."""
    one, same, other, named = (
        mllog.parse_log_lines([_line({"columns": [name, "b"], "rows": [[1, None], [3, last]]})]).events[0]
        for name, last in (("a", 4), ("a", 4.0), ("a", 5), ("c", 4))
    )

    assert one == same
    assert one not in (other, named)
    assert one.value != {"columns": ["a", "b"], "rows": [[1, None], [3, 4]]}


def test_counts_are_whole_and_seconds_are_not() -> None:
    table = rows_to_data_frame(np.array([[1.0, 2.0, 3.0, math.nan]]), NAMES)

    assert [str(table[name].dtype) for name in NAMES] == ["int64", "float64", "float64", "float64"]
    assert pd.read_csv(io.StringIO(table.to_csv(index=False))).equals(table)
