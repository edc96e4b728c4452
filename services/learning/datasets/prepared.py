"""Datasets that the host has prepared from files or code of the user: arrays in a folder, which nodes memory-map.

A folder has these files; all arrays are in NumPy's format:

- `train_x.npy`, `train_y.npy`, `test_x.npy`, `test_y.npy`: stored samples and targets. A text has only its tokens,
  `train_x.npy` and `test_x.npy`.
- `x_offset.npy`, `x_divisor.npy`, `y_offset.npy`, `y_divisor.npy`: present if samples or targets are on another scale:
  (stored - offset) / divisor.
- `prepared.json`: the fields of `PreparedArrays`.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.datasets.base import DatasetDescription, DataSource, LearningTask, TrainTestData
from services.learning.datasets.files import AnyFileDataset
from services.learning.datasets.own import AnyOwnDataset
from services.learning.datasets.sample_rows import ConvertedRows, SampleRows
from services.learning.datasets.text_rows import create_text_rows
from services.schema.arrays import HostArray
from services.schema.component import FrozenRecord
from services.schema.errors import HostError


class PreparedArrays(FrozenRecord):
    """Description of the arrays that were prepared from a file."""

    task: LearningTask
    train_samples: int = Field(gt=0)
    test_samples: int = Field(gt=0)
    stored_bytes: int = Field(ge=0)  # size of all array files
    context: int | None = None  # of a text: number of tokens in a sample


class PreparedDataset(DataSource):
    """Dataset whose samples the host has prepared from files or code of the user. Plans have it in their place."""

    kind: Literal["prepared"] = "prepared"
    source: Annotated[AnyFileDataset | AnyOwnDataset, Field(discriminator="kind")]
    folder: str  # absolute path on the host, and in the containers of nodes
    arrays: PreparedArrays

    def load(self, dtype: npt.DTypeLike) -> TrainTestData:
        """Return training and test data; samples are read when they are selected.

        Raises:
            HostError: an array is missing or damaged.
        """
        (train_x, train_y), (test_x, test_y) = (self._open_part(part, dtype) for part in ("train", "test"))
        return TrainTestData(train_x, train_y, test_x, test_y, self.arrays.task)

    def describe(self) -> DatasetDescription:
        return DatasetDescription(self.arrays.task, self.arrays.train_samples, self.arrays.test_samples)

    @property
    def folder_on_nodes(self) -> Path:
        return Path(self.folder)

    @property
    def code_folder(self) -> Path | None:
        return self.source.code_folder

    @property
    def declared_kind(self) -> str:
        return self.source.kind

    def _open_part(self, part: Literal["train", "test"], dtype: npt.DTypeLike) -> tuple[SampleRows, SampleRows]:
        """Return samples and targets of the training or test part."""
        stored_x, task, number_type = self._open_array(f"{part}_x"), self.arrays.task, np.dtype(dtype)
        if self.arrays.context is not None:
            return create_text_rows(stored_x, self.arrays.context, task, number_type)
        target_type = number_type if task.loss == "mse" else np.dtype(np.int64)
        sample_type = np.dtype(np.int64) if task.loss == "next_token" else number_type
        y = ConvertedRows(self._open_array(f"{part}_y"), target_type, *self._scale_of("y"))
        return ConvertedRows(stored_x, sample_type, *self._scale_of("x")), y

    def _scale_of(self, name: Literal["x", "y"]) -> tuple[HostArray | None, HostArray | None]:
        """Return the offset and the divisor of samples or targets."""
        names = (f"{name}_offset", f"{name}_divisor")
        offset, divisor = (self._open_array(each) if self._array_path(each).exists() else None for each in names)
        return offset, divisor

    def _array_path(self, array_name: str) -> Path:
        return Path(self.folder) / f"{array_name}.npy"

    def _open_array(self, array_name: str) -> HostArray:
        """Return an array of the folder, memory-mapped and read-only."""
        try:
            mapped: HostArray = np.load(self._array_path(array_name), mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise HostError(
                f"{self._array_path(array_name)}: the prepared data can't be read ({error}); delete the folder "
                f"{self.folder}, then run the scenario again: Ensayo prepares the data anew"
            ) from error
        return mapped.view(np.ndarray)  # selected rows are ordinary arrays
