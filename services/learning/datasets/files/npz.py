"""Dataset in arrays of NumPy."""

from typing import Literal

from pydantic import Field

from services.learning.datasets.files.base import FileDataset

ArrayScale = Literal["as_stored", "pixels", "standardised"]


class NpzFile(FileDataset):
    """Samples and targets in arrays of an npz file of NumPy.

    Integer targets of shape (n,) are classes; other targets, of shape (n,) or (n, outputs), are the values of a
    regression. `test_x` and `test_y` name the arrays of the test samples in `test_path`, or in `path` if there is no
    `test_path`.
    """

    kind: Literal["npz"] = "npz"
    x: str = Field("x", min_length=1, description="name of the array of samples, shape (n, ...)")
    y: str = Field("y", min_length=1, description="name of the array of targets")
    test_x: str | None = Field(None, min_length=1, description="name of the array of test samples")
    test_y: str | None = Field(None, min_length=1, description="name of the array of test targets")
    classes: int | None = Field(None, gt=0, description="number of classes; default: the largest label plus 1")
    scale: ArrayScale = Field(
        default="as_stored",
        description="as_stored: unchanged; pixels: samples divided by 255; standardised: each number of a sample, and "
        "each value of a regression, with mean 0 and deviation 1 over the training samples",
    )
