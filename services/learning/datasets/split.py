"""Which samples are for testing, and how are numbers brought to a common scale without looking at them?"""

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import Data, Task
from services.schema.arrays import HostArray


def split(samples: int, test_fraction: float, seed: int) -> tuple[HostArray, HostArray]:
    """Indices for training and for testing, both ascending: round(test_fraction · samples) are drawn for testing."""
    shuffled = np.random.default_rng(seed).permutation(samples)
    tests = round(test_fraction * samples)
    return np.sort(shuffled[tests:]), np.sort(shuffled[:tests])


def stratified_split(labels: HostArray, test_fraction: float, seed: int) -> tuple[HostArray, HostArray]:
    """Like `split`, drawn class by class, so that both parts hold every class in the same proportion."""
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    halves = [split(len(members), test_fraction, seed) for members in classes]
    train, test = (
        np.sort(np.concatenate([members[half[part]] for members, half in zip(classes, halves, strict=True)]))
        for part in (0, 1)
    )
    return train, test


def standardised(x: HostArray, like: HostArray) -> HostArray:
    """(x - mean) / standard deviation, column by column, both taken from `like`, whose columns must vary."""
    return np.asarray((x - like.mean(axis=0)) / like.std(axis=0))


def regression(x: HostArray, y: HostArray, test_fraction: float, seed: int, dtype: npt.DTypeLike) -> Data:
    """Samples `x` (n, inputs) and targets `y` (n, outputs), split, both standardised by their training part."""
    train, test = split(len(x), test_fraction, seed)
    x, y = (standardised(z, like=z[train]).astype(dtype) for z in (x, y))
    task = Task(inputs=x.shape[1:], outputs=y.shape[1], loss="mse")
    return Data(x[train], y[train], x[test], y[test], task)
