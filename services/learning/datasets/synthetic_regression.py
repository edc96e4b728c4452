"""A regression of any size, from a formula: for runs whose data must grow with the cluster."""

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.datasets.base import Data, Dataset
from services.learning.datasets.split import regression


class SyntheticRegression(Dataset):
    """y = tanh(x·A/√features)·B/√hidden + noise·ε, with x, A, B, ε standard normal: more than a line can fit.

    Shapes: x (samples, features), A (features, hidden), B (hidden, outputs), ε like y; all standardised afterwards by
    the training part. `noise` is in units of y before that, where the clean y has a standard deviation of about 0.6.
    """

    kind: Literal["synthetic_regression"] = "synthetic_regression"
    samples: int = Field(default=2048, ge=2)
    features: int = Field(default=16, gt=0)
    outputs: int = Field(default=4, gt=0)
    hidden: int = Field(default=32, gt=0)
    noise: float = Field(default=0.1, ge=0)

    def load(self, dtype: npt.DTypeLike) -> Data:
        normal = np.random.default_rng(self.seed).standard_normal
        x = normal((self.samples, self.features))
        a = normal((self.features, self.hidden)) / np.sqrt(self.features)
        b = normal((self.hidden, self.outputs)) / np.sqrt(self.hidden)
        y = np.tanh(x @ a) @ b + self.noise * normal((self.samples, self.outputs))
        return regression(x, y, self.test_fraction, self.seed, dtype)
