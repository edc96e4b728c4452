"""Learning task of a dataset, which decides which models, targets and batches fit."""

from functools import cache
from typing import NamedTuple

from services.learning.datasets import DataSource, LearningTask


class LearningTaskAndTrainSize(NamedTuple):
    """The learning task of a dataset, and the size of its training set."""

    task: LearningTask
    train_samples: int


@cache
def learning_task_of(dataset: DataSource) -> LearningTaskAndTrainSize:
    """Return the learning task of a dataset and the size of its training set.

    The dataset is loaded at the first call.

    Raises:
        DataFileError: the dataset consists of files of the user, which can't be read.
        OwnCodeError: code of the user, which creates the dataset, is wrong.
    """
    description = dataset.describe()
    return LearningTaskAndTrainSize(description.task, description.train_samples)
