"""Diabetes progression: a regression on measured data.

A linear model explains half of the variance.
"""

from typing import Literal

import numpy.typing as npt

from services.learning.datasets.base import Dataset, TrainTestData, read_stored_arrays
from services.learning.datasets.split import split_regression_data


class Diabetes(Dataset):
    """Regression of disease progression after one year on ten measurements of 442 patients.

    All columns are standardised by the training part. B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, "Least angle
    regression", Annals of Statistics 32(2), 2004.
    """

    kind: Literal["diabetes"] = "diabetes"

    def load(self, dtype: npt.DTypeLike) -> TrainTestData:
        data = read_stored_arrays("diabetes")
        return split_regression_data(data["measurements"], data["progression"], self.test_fraction, self.seed, dtype)
