"""Writer of array files in NumPy's format, row by row.

A full disk raises an error; writing to a memory map would kill the process instead.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from services.learning.layout import Shape
from services.schema.arrays import HostArray


class ArrayWriter:
    """File of an array to which rows are appended."""

    def __init__(self, folder: Path, array_name: str, shape: Shape, number_type: np.dtype[Any]) -> None:
        """Create the file; `shape` is that of the complete array."""
        self.path = folder / f"{array_name}.npy"
        self._number_type = number_type.newbyteorder("=")
        self._missing_rows = shape[0]
        self._file = self.path.open("wb")
        header = {
            "descr": np.lib.format.dtype_to_descr(self._number_type),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_2_0(self._file, header)

    def append(self, rows: HostArray) -> None:
        """Write the next rows."""
        self._missing_rows -= len(rows)
        self._file.write(np.ascontiguousarray(rows, self._number_type).data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        if error is None and self._missing_rows:
            raise ValueError(f"{self.path}: {self._missing_rows} rows are missing")


def write_array(folder: Path, array_name: str, array: HostArray) -> None:
    """Write a whole array to a new file."""
    with ArrayWriter(folder, array_name, array.shape, array.dtype) as writer:
        writer.append(array)
