"""Rows that a node logs many to a line, as one array."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.statistics.centre import Floats

KEYS = {"columns", "rows"}


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows under the names of their columns.

    A fifth of the memory of lists of numbers, and made while the processor has those at hand: reading long logs takes
    four fifths of the time.
    """

    columns: tuple[str, ...]
    rows: Floats  # shape (rows, columns); null is NaN

    def __eq__(self, other: object) -> bool:
        """Whether names and numbers are the same; NaN is as NaN."""
        if not isinstance(other, Batch):
            return NotImplemented
        return self.columns == other.columns and np.array_equal(self.rows, other.rows, equal_nan=True)

    __hash__ = None  # type: ignore[assignment] # as lists have none


def batch_of(value: Any) -> Batch:
    """What was logged as `{"columns": [name, ...], "rows": [[number or null, ...], ...]}`.

    Numbers are what NumPy takes for some.

    Raises:
        ValueError: it is something else; the text goes on after the event's key.
    """
    columns, rows = (value.get("columns"), value.get("rows")) if isinstance(value, dict) else (None, None)
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise ValueError("without columns and rows")  # noqa: TRY004 - a value of a log, no argument of ours
    names = tuple(map(str, columns))
    if set(map(type, rows)) - {list} or set(map(len, rows)) - {len(names)}:
        raise ValueError(f"with rows that have not {len(names)} values")
    try:
        found = np.array(rows, dtype=float)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError("with a value that is no number") from error
    if rows and found.shape != (len(rows), len(names)):
        raise ValueError("with a value that is no number")
    return Batch(names, found.reshape(len(rows), len(names)))
