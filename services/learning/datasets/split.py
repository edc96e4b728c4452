"""Split of samples into training and test parts, and standardisation.

Standardisation uses the mean and deviation of the training part alone.
"""

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import LearningTask, TrainTestData
from services.schema.arrays import HostArray


def random_split(sample_count: int, test_fraction: float, seed: int) -> tuple[HostArray, HostArray]:
    """Return the indices of the training samples and of the test samples, at random.

    Both are ascending; the number of test samples is round(test_fraction · sample_count).
    """
    shuffled = np.random.default_rng(seed).permutation(sample_count)
    test_count = round(test_fraction * sample_count)
    return np.sort(shuffled[test_count:]), np.sort(shuffled[:test_count])


def stratified_split(labels: HostArray, test_fraction: float, seed: int) -> tuple[HostArray, HostArray]:
    """Return the indices of training and test samples, split class by class.

    Both are ascending, and every class has the same proportion in both.
    """
    class_indices = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    splits = [random_split(len(indices), test_fraction, seed) for indices in class_indices]
    train, test = (
        np.sort(np.concatenate([indices[split[part]] for indices, split in zip(class_indices, splits, strict=True)]))
        for part in (0, 1)
    )
    return train, test


def standardise(x: HostArray, training_data: HostArray) -> HostArray:
    """Return `x` with each column standardised: (x - mean) / deviation.

    Mean and standard deviation are those of `training_data`.
    """
    return np.asarray((x - training_data.mean(axis=0)) / training_data.std(axis=0))


def split_regression_data(
    x: HostArray, y: HostArray, test_fraction: float, seed: int, dtype: npt.DTypeLike
) -> TrainTestData:
    """Return training and test data of a regression task.

    The samples `x` have the shape (n, inputs), the targets `y` the shape (n, outputs). The samples are split at random;
    both arrays are standardised by their training part.
    """
    train, test = random_split(len(x), test_fraction, seed)
    x, y = (standardise(z, training_data=z[train]).astype(dtype) for z in (x, y))
    task = LearningTask(inputs=x.shape[1:], outputs=y.shape[1], loss="mse")
    return TrainTestData(x[train], y[train], x[test], y[test], task)
