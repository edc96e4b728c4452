"""Rows of samples or targets: arrays in memory, or rows of a stored array that are converted when they are selected."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from services.learning.epoch_orders import SampleIndices
from services.learning.layout import Shape
from services.schema.arrays import HostArray


class SampleRows(Protocol):
    """Samples or targets of a dataset, one per row. A NumPy array is an instance."""

    @property
    def shape(self) -> Shape:
        """Number of rows, then the shape of one row."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers in selected rows."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, rows: slice | SampleIndices, /) -> HostArray:
        """Return the selected rows as an array in host memory."""


@dataclass(frozen=True)
class ConvertedRows:
    """Rows of a stored array, converted to numbers of another type, and optionally to another scale.

    A selected row is (stored - offset) / divisor. Only selected rows are read and converted, so that the stored array
    may be larger than the memory if it is memory-mapped.
    """

    stored: HostArray  # shape (n, …)
    dtype: np.dtype[Any]
    offset: HostArray | None = None  # shape of a row; computed in fp64
    divisor: HostArray | None = None  # shape of a row, or ()

    @property
    def shape(self) -> Shape:
        """Number of rows, then the shape of one row."""
        return self.stored.shape

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, rows: slice | SampleIndices, /) -> HostArray:
        selected: HostArray = self.stored[rows]
        if self.offset is not None:
            selected = selected - self.offset
        elif self.divisor is not None:  # in one pass
            return np.divide(selected, self.divisor, dtype=self.dtype, casting="unsafe")
        if self.divisor is not None:
            selected = selected / self.divisor
        return selected.astype(self.dtype, copy=False)
