"""Synthetic regression of any size.

It serves runs whose data must grow with the cluster.
"""

from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from services.learning.datasets.base import Dataset, TrainTestData
from services.learning.datasets.split import split_regression_data
from services.schema.conflicts import KeyConflict, raise_conflicts
from services.schema.limits import MAX_GENERATED_NUMBERS


class SyntheticRegression(Dataset):
    """Synthetic nonlinear regression on normally distributed samples.

    y = tanh(x·A/√features)·B/√hidden + noise·ε, with x, A, B and ε standard normal. Shapes: x (samples, features), A
    (features, hidden), B (hidden, outputs), ε like y. Afterwards all columns are standardised by the training part.
    `noise` is in units of y before that; without noise, y has a standard deviation of about 0.6.
    """

    kind: Literal["synthetic_regression"] = "synthetic_regression"
    samples: int = Field(default=2048, ge=2, description="number of samples, for training and testing together")
    features: int = Field(default=16, gt=0, description="numbers per sample")
    outputs: int = Field(default=4, gt=0, description="numbers to predict per sample")
    hidden: int = Field(default=32, gt=0, description="hidden units of the function that generates the targets")
    noise: float = Field(default=0.1, ge=0, description="standard deviation of the noise that is added to the targets")

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        raise_conflicts(self._find_too_large_arrays())
        return self

    def _find_too_large_arrays(self) -> Iterator[KeyConflict]:
        """Yield a conflict at the largest dimension of the generated arrays if they are too large together."""
        rows, columns = self.samples + self.hidden, self.features + self.outputs + self.hidden
        if rows * columns > MAX_GENERATED_NUMBERS:
            key = max(("samples", "features", "outputs", "hidden"), key=lambda name: int(getattr(self, name)))
            message = (
                f"{self.samples:,} samples with {self.features:,} features, {self.outputs:,} outputs and "
                f"{self.hidden:,} hidden units are more than {MAX_GENERATED_NUMBERS:,} generated numbers; "
                f"reduce {key} until (samples + hidden) · (features + outputs + hidden) is at most that"
            )
            yield KeyConflict((key,), message)

    def load(self, dtype: npt.DTypeLike) -> TrainTestData:
        normal = np.random.default_rng(self.seed).standard_normal
        x = normal((self.samples, self.features))
        a = normal((self.features, self.hidden)) / np.sqrt(self.features)
        b = normal((self.hidden, self.outputs)) / np.sqrt(self.hidden)
        y = np.tanh(x @ a) @ b + self.noise * normal((self.samples, self.outputs))
        return split_regression_data(x, y, self.test_fraction, self.seed, dtype)
