"""Datasets in files of the user. The host reads the files; nodes read arrays that the host has prepared from them.

idx        images or vectors with labels, in the format of MNIST
cifar10    images with labels, in the binary format of CIFAR-10
npz        arrays of NumPy
csv        table as text
parquet    table in the format of Apache Parquet
text       text, as characters or words
images     pictures, in one folder per class

`AnyFileDataset` is the registry: each member of this union can be named in a scenario by its `kind`. A member's reader
is in `compose/data_files`.
"""

from typing import TypeAlias

from services.learning.datasets.files.base import (
    DataFile,
    DataFileError,
    FileDataset,
    UserDataset,
    install_data_preparer,
)
from services.learning.datasets.files.cifar10 import Cifar10File
from services.learning.datasets.files.idx import IdxFile
from services.learning.datasets.files.images import ImageFolder
from services.learning.datasets.files.npz import NpzFile
from services.learning.datasets.files.tables import CsvFile, ParquetFile, TableFile
from services.learning.datasets.files.text import TextFile

AnyFileDataset: TypeAlias = IdxFile | Cifar10File | NpzFile | CsvFile | ParquetFile | TextFile | ImageFolder

__all__ = [
    "AnyFileDataset",
    "Cifar10File",
    "CsvFile",
    "DataFile",
    "DataFileError",
    "FileDataset",
    "IdxFile",
    "ImageFolder",
    "NpzFile",
    "ParquetFile",
    "TableFile",
    "TextFile",
    "UserDataset",
    "install_data_preparer",
]
