"""Training and test data of a node."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from services.learning.datasets import DataSource, TrainTestData


@lru_cache(maxsize=1)  # all nodes of a simulated trial share one process
def load_training_data(dataset: DataSource, dtype: npt.DTypeLike) -> TrainTestData:
    """Return the training and test data of a trial; arrays are read-only, because nodes may share them."""
    data = dataset.load(dtype)
    for rows in (data.train_x, data.train_y, data.test_x, data.test_y):
        if isinstance(rows, np.ndarray):
            rows.flags.writeable = False
    return data
