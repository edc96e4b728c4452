"""Linnerud's fitness-club measurements: a very small regression on measured data."""

from typing import Literal

import numpy.typing as npt

from services.learning.datasets.base import Dataset, TrainTestData, read_stored_arrays
from services.learning.datasets.split import split_regression_data


class Linnerud(Dataset):
    """Regression of weight, waist and pulse of 20 men on their chin-ups, sit-ups and jumps.

    All columns are standardised by the training part. A. C. Linnerud, North Carolina State University; printed in
    M. Tenenhaus, "La régression PLS", Technip, 1998.
    """

    kind: Literal["linnerud"] = "linnerud"

    def load(self, dtype: npt.DTypeLike) -> TrainTestData:
        arrays = read_stored_arrays("linnerud")
        return split_regression_data(arrays["exercise"], arrays["physiology"], self.test_fraction, self.seed, dtype)
