"""Functions that return datasets, as a user has written them."""

from typing import Any

import numpy as np


def load_classes(count: int = 60, classes: int = 3) -> tuple[Any, ...]:
    """Return points around centres, already split."""
    rng = np.random.default_rng(7)
    y = np.arange(count) % classes
    x = rng.normal(size=(count, 4)) + y[:, np.newaxis]
    half = count // 2
    return x[:half], y[:half], x[half:], y[half:]


def load_values(count: int = 60) -> dict[str, Any]:
    """Return a regression that Ensayo splits."""
    x = np.linspace(-1, 1, 3 * count, dtype=np.float32).reshape(count, 3)
    return {"x": x, "y": x.sum(axis=1)}


def load_tokens(count: int = 40, length: int = 6) -> tuple[Any, ...]:
    """Return sequences in which each token follows from the token before."""
    tokens = (np.arange(count)[:, np.newaxis] + np.arange(length + 1)) % 5
    return tokens[:30, :-1], tokens[:30, 1:], tokens[30:, :-1], tokens[30:, 1:]


def load_table(table: str, columns: int) -> tuple[Any, Any]:
    """Return the first columns of a text file, and the last column as the target."""
    rows = np.loadtxt(table)
    return rows[:, :columns], rows[:, -1]
