"""Rows that a node logs many to a line, as one frame of numbers, and the lines whose rows can't be used."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.reading.batch import Batch, batch_of
from analysis.reading.mllog import Broken, Event, Log
from analysis.statistics.centre import Floats

COUNTS = frozenset(
    {"step", "epoch", "samples", "bytes_sent", "messages_sent", "staleness", "version", "worker", "push_step"}
)
LARGEST = 2.0**63  # beyond every int64; NaN is below nothing


def read_batches(
    log: Log, key: str, columns: Sequence[str], needed: Sequence[str] = ()
) -> tuple[Floats, tuple[Broken, ...]]:
    """The rows under `key`, shape (rows, columns); a value that was not logged is NaN.

    A node names its columns in every batch, in an order of its own; nodes of other versions log others. A batch without
    a `needed` column, with rows of another length or with what NumPy takes for no number is left out and told.
    """
    found = {event.number: _read(event, needed) for event in log.of(key)}
    told = tuple(Broken(number, f"{key} {fault}") for number, fault in found.items() if isinstance(fault, str))
    sound = [batch for batch in found.values() if isinstance(batch, Batch)]
    alike = [(names, [batch.rows for batch in same]) for names, same in groupby(sound, key=lambda each: each.columns)]
    parts = [_chosen(names, np.vstack(rows), columns) for names, rows in alike]
    return np.vstack(parts) if parts else np.empty((0, len(columns))), told


def frame(values: Floats, columns: Sequence[str]) -> pd.DataFrame:
    """The rows with their names; counts are whole numbers where all of them are known."""
    named = zip(columns, np.ascontiguousarray(values.T), strict=True)
    return pd.DataFrame({name: _counted(each) if name in COUNTS else each for name, each in named})


def _read(event: Event, needed: Sequence[str]) -> Batch | str:
    """The batch, or what is wrong with it."""
    try:
        batch = event.value if isinstance(event.value, Batch) else batch_of(event.value)
    except ValueError as error:
        return str(error)
    missing = [name for name in needed if name not in batch.columns]
    return f"without {', '.join(missing)}: logged by another version" if missing else batch


def _chosen(names: Sequence[str], values: Floats, columns: Sequence[str]) -> Floats:
    """Shape (rows, columns) of the wanted columns; what `names` lack is NaN."""
    unknown = np.full((len(values), 1), np.nan)
    places = [names.index(name) if name in names else len(names) for name in columns]
    return np.asarray(np.hstack([values, unknown])[:, places])


def _counted(values: Floats) -> NDArray[Any]:
    known = len(values) > 0 and bool((np.abs(values) < LARGEST).all() and (values == np.rint(values)).all())
    return values.astype("int64") if known else values
