"""Dataset that a function of the user returns as arrays."""

from typing import Literal

from services.learning.datasets.own.base import OwnDataset


class PythonDataset(OwnDataset):
    """Arrays that a function of the user returns: `(train_x, train_y, test_x, test_y)`, or a dict with these keys.

    With `(x, y)`, the test samples are a part of the samples, as `test_fraction` and `seed` state.
    """

    kind: Literal["python"] = "python"

    __hash__ = OwnDataset.__hash__
