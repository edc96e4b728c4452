"""Diabetes progression: a real regression that a straight line explains by half."""

from typing import Literal

import numpy.typing as npt

from services.learning.datasets.base import Data, Dataset, stored
from services.learning.datasets.split import regression


class Diabetes(Dataset):
    """Ten measurements of 442 patients → progression one year later; all columns standardised by the training part.

    B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, "Least angle regression", Annals of Statistics 32(2), 2004.
    """

    kind: Literal["diabetes"] = "diabetes"

    def load(self, dtype: npt.DTypeLike) -> Data:
        arrays = stored("diabetes")
        return regression(arrays["measurements"], arrays["progression"], self.test_fraction, self.seed, dtype)
