"""Base class of texts in a scenario that have a meaning, such as `2.5 USD/h`."""

from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


class ValidatedText(str):
    """A text that a subclass parses when it is created; a wrong text raises a ValueError with the allowed forms.

    In YAML and JSON it is the text as written.
    """

    __slots__ = ()

    forms: ClassVar[str]  # what the text is, and an example; follows "should be" in an error message
    json_schema: ClassVar[dict[str, Any]]  # with which editors complete and check the text

    @classmethod
    def _validate(cls, value: Any) -> Self:
        if isinstance(value, str):
            return cls(value)
        raise ValueError(f"should be {cls.forms}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the pydantic schema: validated text."""
        written = core_schema.plain_serializer_function_ser_schema(lambda value: str(value), when_used="json")  # noqa: PLW0108 - pydantic cannot inspect `str`
        return core_schema.no_info_plain_validator_function(cls._validate, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema of the text."""
        return cls.json_schema
