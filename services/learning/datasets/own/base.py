"""Fields and code that all datasets share which code of the user creates."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, JsonValue

from services.learning.datasets.files.base import DataFile, UserDataset
from services.learning.objectives import LossName
from services.learning.own_code import UserCode


class OwnDataset(UserDataset):
    """Base class of datasets that a function or class of the user creates.

    The objective follows from the targets if it is not declared: whole numbers, one per sample, are classes; other
    targets are the values of a regression.
    """

    remedy_for_missing_test_samples: ClassVar[str] = "return test samples, or declare another test_fraction"
    objective_losses: ClassVar[Mapping[str, LossName]] = {
        "classification": "cross_entropy",
        "regression": "mse",
        "next_token": "next_token",
    }

    module: UserCode = Field(
        description="function or class that creates the samples, as FILE:NAME with a path relative to the scenario "
        "file, for example my_data.py:load"
    )
    arguments: dict[str, JsonValue] = Field({}, description="arguments of the function or class")
    files: dict[str, DataFile] = Field(
        {},
        description="data files that the code reads: name of an argument -> path, relative to the scenario file. The "
        "code gets the absolute path; other content is prepared anew",
    )
    objective: Literal["classification", "regression", "next_token"] | None = Field(
        None,
        description="what a model learns; default: classification if the targets are whole numbers, one per sample, "
        "else regression. next_token: samples and targets are sequences of tokens",
    )
    classes: int | None = Field(
        None, gt=0, description="number of classes, or of tokens; default: the largest class or token plus 1"
    )
    check_determinism: bool = Field(
        default=True, description="run the code twice, and reject it if it returns other samples the second time"
    )

    def __hash__(self) -> int:
        """Return the hash of all fields: dicts have no hash of their own."""
        return self._json_hash

    @cached_property
    def _json_hash(self) -> int:
        return hash(self.model_dump_json())

    @property
    def code_folder(self) -> Path | None:
        return None if self.module.folder is None else Path(self.module.folder)

    def data_files(self) -> Iterator[tuple[str, DataFile]]:
        for file in self.files.values():
            yield "files", file

    def without_paths(self) -> Self:
        module = self.module.model_copy(update={"file": self.module.file_name, "folder": None})
        files = {name: file.model_copy(update={"file": name}) for name, file in self.files.items()}
        return self.model_copy(update={"module": module, "files": files})
