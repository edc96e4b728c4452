"""Fields and code that all models of the user share."""

import inspect
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from services.learning.models.base import Model, ModelFolders
from services.learning.own_code import (
    OwnCodeError,
    UserCode,
    call_user_object,
    describe_definition,
    load_user_object,
)

CODE_KEYS = ("module", "loss")  # keys of models that name code of the user


class UserModel(Model):
    """Base class of models that consist of a class of the user."""

    module: UserCode = Field(
        description="class of the model, as FILE:NAME with a path relative to the scenario file, for example "
        "my_model.py:MyModel"
    )
    arguments: dict[str, JsonValue] = Field({}, description="arguments of the constructor of the class")

    def __hash__(self) -> int:
        """Return the hash of all fields: `arguments` is a dict, which has no hash of its own."""
        return self._json_hash

    @cached_property
    def _json_hash(self) -> int:
        """Hash of all fields, which every step needs."""
        return hash(self.model_dump_json())

    @property
    def folders_on_nodes(self) -> ModelFolders:
        return ModelFolders(code=None if self.module.folder is None else Path(self.module.folder))

    def create_object(self, *positional: Any, **named: Any) -> Any:
        """Return a new object of the user's class.

        Args:
            positional: arguments of the constructor before those of the scenario.
            named: arguments of the constructor, which those of the scenario replace.

        Raises:
            OwnCodeError: the file can't be imported, or the constructor raises an error or has other parameters.
        """
        user_class = load_user_object(self.module)
        if not inspect.isclass(user_class):
            raise OwnCodeError(("module",), f"{describe_definition(self.module)}: {self.module.name} is not a class")
        return call_user_object(self.module, *positional, **named | self.arguments)
