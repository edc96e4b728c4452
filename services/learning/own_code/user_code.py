"""Reference to a class or function in a Python file of the user."""

from pathlib import Path
from typing import Any

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from services.schema.component import FrozenRecord

SHA256_PATTERN = r"^[0-9a-f]{64}$"
REFERENCE_PATTERN = r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$"


class UserCode(FrozenRecord):
    """Class or function in a Python file of the user.

    A scenario names it as FILE:NAME, with a path relative to the scenario file. When the scenario is loaded, the path
    becomes absolute, and the digest and the folder are added. Then two equal records always stand for the same code.
    """

    file: str = Field(pattern=r".\.py$", description="path of the Python file, relative to the scenario file")
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="name of the class or function in the file")
    sha256: str | None = Field(
        None, pattern=SHA256_PATTERN, description="digest of all Python files in the folder of the file"
    )
    folder: str | None = Field(
        None, description="copy of these files in the user's cache, from which nodes import them; set by Ensayo"
    )

    @model_validator(mode="before")
    @classmethod
    def _split_reference(cls, declared: Any) -> Any:
        if not isinstance(declared, str):
            if not isinstance(declared, dict | cls):
                raise ValueError("should be FILE:NAME, for example my_model.py:MyModel")  # noqa: TRY004 - pydantic collects ValueErrors
            return declared
        parts = split_reference(declared)
        if parts is None:
            raise ValueError(f"should be FILE:NAME, for example my_model.py:MyModel, not {declared!r}")
        return parts

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema of a reference, which can be written as FILE:NAME or as a section."""
        return {"anyOf": [handler(core), {"type": "string", "pattern": REFERENCE_PATTERN}]}

    @property
    def source_folder(self) -> Path:
        """Folder of the file of the user."""
        return Path(self.file).parent

    @property
    def file_name(self) -> str:
        """Name of the file, without its folder."""
        return Path(self.file).name

    def contains(self, path: Path) -> bool:
        """Return whether a path is in the folder from which nodes import the code."""
        return self.folder is not None and path.is_relative_to(self.folder)

    def path_in_user_folder(self, path: Path) -> Path:
        """Return the file of the user of which `path` is the copy; return other paths unchanged."""
        if self.folder is None or not self.contains(path):
            return path
        return self.source_folder / path.relative_to(self.folder)


def split_reference(reference: str) -> dict[str, str] | None:
    """Return file and name of a reference FILE:NAME; None if the text is no such reference."""
    file, _, name = reference.rpartition(":")
    return {"file": file, "name": name} if file.endswith(".py") and name.isidentifier() else None
