"""Datasets with one mistake each."""

from typing import Any

import numpy as np

X, Y = np.ones((6, 2)), np.arange(6) % 2


def fewer_targets() -> Any:
    return X, Y[:5], X, Y


def three() -> Any:
    return X, Y, X


def words() -> Any:
    return X, np.array(["a"] * 6)


def raises() -> Any:
    return open("missing.csv")  # noqa: PTH123 - as users write it


def unseeded() -> Any:
    return np.random.default_rng().normal(size=(6, 2)), Y


def infinite() -> Any:
    x = X.copy()
    x[3, 1] = np.nan
    return x, Y, X, Y


def other_shapes() -> Any:
    return X, Y, np.ones((6, 3)), Y


def few() -> Any:
    return X[:2], Y[:2]


def labels(largest: int) -> Any:
    return X, np.where(Y, largest, 0), X, Y


class NoItems:
    """A dataset that can only be iterated."""

    def __iter__(self) -> Any:
        return iter([(X[0], 0)])


class Pictures:
    """A dataset with samples that are no numbers."""

    def __init__(self, train: bool) -> None:
        self.train = train

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> Any:
        return object(), number


class Uneven(Pictures):
    """A dataset with samples of different shapes."""

    def __getitem__(self, number: int) -> Any:
        return np.ones(2 + number), number


class Broken(Pictures):
    """A dataset that raises an error."""

    def __getitem__(self, number: int) -> Any:
        return np.ones(2), 1 / (2 - number)


class Singles(Pictures):
    """A dataset without targets."""

    def __getitem__(self, number: int) -> Any:
        return np.ones(2)
