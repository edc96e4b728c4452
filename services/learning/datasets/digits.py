"""Handwritten digits: a small real dataset of images."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.datasets.base import Dataset, LearningTask, TrainTestData, read_stored_arrays
from services.learning.datasets.split import stratified_split
from services.learning.objectives import LossName

MAX_PIXEL_VALUE = 16  # a pixel counts the inked points of a 4x4 block


class Digits(Dataset):
    """Images of the ten handwritten digits: to classify, or to learn how to generate them by denoising.

    The 1,797 images have the shape (1, 8, 8) and pixels in [0, 1]; they are split class by class. E. Alpaydin, C.
    Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998 (its test part, as in scikit-learn).
    """

    kind: Literal["digits"] = "digits"
    objective: Literal["classification", "denoising"] = Field(
        "classification", description="what a model learns: the digit of an image, or the noise in a noisy image"
    )

    objective_losses: ClassVar[Mapping[str, LossName]] = {"classification": "cross_entropy", "denoising": "denoising"}

    def load(self, dtype: npt.DTypeLike) -> TrainTestData:
        arrays = read_stored_arrays("digits")
        x = arrays["images"][:, np.newaxis].astype(dtype) / np.asarray(MAX_PIXEL_VALUE, dtype)
        y = arrays["labels"].astype(np.int64)
        train, test = stratified_split(y, self.test_fraction, self.seed)
        task = LearningTask(inputs=x.shape[1:], outputs=10, loss=self.objective_losses[self.objective])
        return TrainTestData(x[train], y[train], x[test], y[test], task)
