"""All nodes of a simulated trial share one copy of the data, which none of them can change."""

import numpy as np
import pytest

from services.learning.datasets.digits import Digits
from services.node.training_data import load_training_data


def test_nodes_share_one_copy_of_the_data() -> None:
    """A thousand nodes in one process would otherwise load and keep the data a thousand times."""
    first, second = (load_training_data(Digits(seed=3), "float32") for _ in range(2))

    assert first.train_x is second.train_x
    assert load_training_data(Digits(seed=4), "float32").train_x is not first.train_x


def test_no_node_can_change_the_samples_of_others() -> None:
    data = load_training_data(Digits(seed=3), "float32")

    for rows in (data.train_x, data.train_y, data.test_x, data.test_y):
        assert isinstance(rows, np.ndarray)
        with pytest.raises(ValueError, match="read-only"):
            rows[0] = 0
