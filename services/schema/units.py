"""How is a quantity written? Always with its unit: `100mbit`, `5ms`, `512MiB`, `4000/s`.

In Python a quantity is a float of SI units (`Rate("100mbit") == 1e8`); in YAML and JSON it is its written form.
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"


class Quantity(float):
    """A number of SI units above zero; what there is none of is left out of a scenario.

    `Rate("100mbit")` and `Rate(1e8)` are the same; a scenario accepts the first form only.
    """

    units: ClassVar[Mapping[str, float]]  # suffix -> SI units, smallest first; one of them is 1
    example: ClassVar[str]

    def __new__(cls, value: str | float) -> Self:
        """Raises ValueError with the right form."""
        return super().__new__(cls, cls._parse(value) if isinstance(value, str) else value)

    @classmethod
    def pattern(cls) -> str:
        """The regular expression of every written form."""
        return f"^({NUMBER})({'|'.join(cls.units)})$"

    @classmethod
    def _parse(cls, text: str) -> float:
        match = re.match(cls.pattern(), text)
        value = float(match[1]) * cls.units[match[2]] if match else 0.0
        if value > 0 and isfinite(value):
            return value
        raise ValueError(
            f"{text!r} is not a {cls.__name__.lower()} above zero; "
            f"units are {', '.join(cls.units)}, for example {cls.example}"
        )

    @classmethod
    def _decode(cls, value: Any) -> Self:
        if isinstance(value, cls | str):
            return cls(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError(f"{value:g} is a bare number; write it with its unit, for example {cls.example}")  # noqa: TRY004 - pydantic collects ValueErrors
        raise ValueError(f"should be a {cls.__name__.lower()} with its unit, for example {cls.example}")

    def __str__(self) -> str:
        """The shortest exact way to write it."""
        forms = (f"{self / scale!r}".removesuffix(".0") + suffix for suffix, scale in self.units.items())
        return min((form for form in forms if self._parse(form) == self), key=len)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Written forms come in; written forms go out to JSON."""
        written = core_schema.plain_serializer_function_ser_schema(lambda value: str(value), when_used="json")  # noqa: PLW0108 - pydantic cannot inspect `str`
        return core_schema.no_info_plain_validator_function(cls._decode, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """A string with a pattern, so that editors underline a wrong unit."""
        return {"type": "string", "pattern": cls.pattern(), "examples": [cls.example]}


class Rate(Quantity):
    """Bits per second; prefixes are decimal."""

    units: ClassVar = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    example = "100mbit"


class Duration(Quantity):
    """Seconds."""

    units: ClassVar = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
    example = "5ms"


class Bytes(Quantity):
    """Bytes; MB is decimal, MiB is binary."""

    units: ClassVar = {"B": 1.0, "kB": 1e3, "KiB": 2.0**10, "MB": 1e6, "MiB": 2.0**20, "GB": 1e9, "GiB": 2.0**30}
    example = "512MiB"


class Throughput(Quantity):
    """Training samples per second."""

    units: ClassVar = {"/s": 1.0}
    example = "4000/s"
