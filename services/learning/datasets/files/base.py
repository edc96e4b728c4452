"""Base classes of datasets of the user, and the function with which the host prepares their samples."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, TypeAlias

import numpy.typing as npt
from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from services.learning.datasets.base import Dataset, DatasetDescription, DataSource, TrainTestData
from services.schema.component import FrozenRecord
from services.schema.errors import UserError

SHA256_PATTERN = r"^[0-9a-f]{64}$"


class DataFileError(UserError):
    """Error in a file of the user, or in the keys that describe the file."""

    def __init__(self, key: str, message: str) -> None:
        """Create the error.

        Args:
            key: key of the dataset that names the file, or that the file does not fit.
            message: file and position, what is wrong, what is allowed.
        """
        super().__init__(message)
        self.key = key


class DataFile(FrozenRecord):
    """File or folder of the user.

    A scenario names it by its path, relative to the scenario file; when the scenario is loaded, the digest of the
    content is added. Then two equal records always stand for the same content.
    """

    file: str = Field(min_length=1, description="path of the file or folder, relative to the scenario file")
    sha256: str | None = Field(
        None, pattern=SHA256_PATTERN, description="digest of the content; a file with other content is rejected"
    )

    @model_validator(mode="before")
    @classmethod
    def _convert_path(cls, declared: Any) -> Any:
        if not isinstance(declared, str | dict | cls):
            raise ValueError("should be the path of a file, for example data/mine.csv")  # noqa: TRY004 - pydantic collects ValueErrors
        return {"file": declared} if isinstance(declared, str) else declared

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema of a file, which can be written as a path or as a section."""
        return {"anyOf": [handler(core), {"type": "string", "minLength": 1}]}


class UserDataset(Dataset):
    """Base class of datasets whose samples the host prepares from files or code of the user."""

    remedy_for_missing_test_samples: ClassVar[str] = "declare test_path, or another test_fraction"  # in messages

    @abstractmethod
    def data_files(self) -> Iterator[tuple[str, DataFile]]:
        """Yield the declared files, each with its key."""

    @abstractmethod
    def without_paths(self) -> Self:
        """Return the dataset without paths of this host: equal results stand for equal samples."""

    def load(self, dtype: npt.DTypeLike) -> TrainTestData:
        return self.as_nodes_load_it().load(dtype)

    def describe(self) -> DatasetDescription:
        return self.as_nodes_load_it().describe()

    def as_nodes_load_it(self) -> DataSource:
        """Return the dataset that the host prepares, or has prepared already.

        Raises:
            DataFileError: a file is missing, damaged, or does not fit the keys of the dataset.
            OwnCodeError: code of the user is missing, raises an error, or returns samples that do not fit the keys.
        """
        for key, file in self.data_files():
            if file.sha256 is None:
                raise DataFileError(key, f"{file.file}: the content is unknown; load the scenario with load_scenario")
        return _prepare_data(self)


class FileDataset(UserDataset):
    """Base class of datasets in files of the user.

    Without `test_path`, the test samples are a part of `path`, as `test_fraction` and `seed` state.
    """

    path: DataFile = Field(description="file with the samples, relative to the scenario file")
    test_path: DataFile | None = Field(None, description="file with the test samples; absent: a part of path")

    def data_files(self) -> Iterator[tuple[str, DataFile]]:
        for key in FILE_KEYS:
            if (file := getattr(self, key, None)) is not None:
                yield key, file

    def without_paths(self) -> Self:
        return self.model_copy(update={key: file.model_copy(update={"file": key}) for key, file in self.data_files()})


DataPreparer: TypeAlias = Callable[[UserDataset], DataSource]

FILE_KEYS = ("path", "labels", "test_path", "test_labels")  # keys of datasets that name files


def _reject_on_nodes(dataset: UserDataset) -> DataSource:
    raise DataFileError("kind", f"nodes do not prepare datasets of users, such as {dataset.kind}")


_prepare_data: DataPreparer = _reject_on_nodes


def install_data_preparer(prepare_data: DataPreparer) -> None:
    """Set the function that prepares the samples of files on this host.

    The readers of file formats are packages of the host, which nodes do not have. So the host installs them here.
    """
    global _prepare_data  # noqa: PLW0603 - a process either prepares data, as the host does, or never does
    _prepare_data = prepare_data
