"""Quantities with a unit: `100mbit`, `5ms`, `512MiB`, `4000/s`.

In Python a quantity is a float in its base unit (`Rate("100mbit") == 1e8`). In YAML and JSON it is a string with the
unit.
"""

import re
import sys
from collections.abc import Mapping
from math import isfinite
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

NUMBER_PATTERN = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"


class Quantity(float):
    """A positive number with a unit, such as a rate or a duration.

    `Rate("100mbit")` and `Rate(1e8)` are equal. A scenario accepts only the string with the unit. Zero is not allowed:
    a scenario without a limit or a delay leaves the key out.
    """

    units: ClassVar[Mapping[str, float]]  # suffix -> size in the base unit, smallest first; the base unit is 1
    noun: ClassVar[str]  # for error messages, with its article
    example: ClassVar[str]  # for error messages and the JSON Schema
    largest: ClassVar[str]  # in a scenario; beyond it, times and byte counts computed from it overflow

    def __new__(cls, value: str | float) -> Self:
        """Create a quantity from a string with a unit, or from a number in the base unit.

        Raises:
            ValueError: the string is not a positive quantity; the message shows an example.
        """
        return super().__new__(cls, cls._parse(value) if isinstance(value, str) else value)

    @classmethod
    def text_regex(cls) -> str:
        """Return the regular expression of a valid quantity with its unit, such as `100mbit`."""
        return f"^({NUMBER_PATTERN})({'|'.join(cls.units)})$"

    @classmethod
    def _parse(cls, text: str) -> float:
        match = re.match(cls.text_regex(), text)
        value = float(match[1]) * cls.units[match[2]] if match else 0.0
        if not isfinite(value):
            raise ValueError(cls._too_large_message(text))
        if value > 0:
            return value
        raise ValueError(
            f"{text!r} is not {cls.noun}; "
            f"write a number above zero with a unit ({', '.join(cls.units)}), such as {cls.example}"
        )

    @classmethod
    def _too_large_message(cls, quantity: str) -> str:
        return f"{quantity} is too large; at most {cls.largest} is allowed"

    @classmethod
    def _validate(cls, value: Any) -> Self:
        if isinstance(value, cls | str):
            quantity = cls(value)
            if quantity > cls(cls.largest):
                raise ValueError(cls._too_large_message(f"{value}"))
            return quantity
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = f"{value:g}" if abs(value) <= sys.float_info.max else "the number"
            raise ValueError(f"{number} has no unit; write it with its unit, for example {cls.example}")  # noqa: TRY004 - pydantic collects ValueErrors
        raise ValueError(f"should be {cls.noun} with its unit, for example {cls.example}")

    def __str__(self) -> str:
        """Return the shortest string that parses back to exactly this quantity."""
        forms = (f"{self / scale!r}".removesuffix(".0") + suffix for suffix, scale in self.units.items())
        return min((form for form in forms if self._parse(form) == self), key=len)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the pydantic schema of a quantity.

        Validation takes a string with a unit. JSON output is such a string.
        """
        written = core_schema.plain_serializer_function_ser_schema(lambda value: str(value), when_used="json")  # noqa: PLW0108 - pydantic cannot inspect `str`
        return core_schema.no_info_plain_validator_function(cls._validate, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema of a quantity: a string with a pattern.

        The pattern makes editors underline a wrong unit.
        """
        return {"type": "string", "pattern": cls.text_regex(), "examples": [cls.example]}


class Rate(Quantity):
    """A data rate in bits per second.

    Prefixes of the unit are decimal: 1 kbit is 1000 bits.
    """

    units: ClassVar = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    noun = "a rate"
    example = "100mbit"
    largest = "1000000gbit"


class Duration(Quantity):
    """A time in seconds."""

    units: ClassVar = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
    noun = "a duration"
    example = "5ms"
    largest = "87600h"


class Bytes(Quantity):
    """A size in bytes.

    MB is a decimal unit (10^6 bytes), MiB a binary unit (2^20 bytes).
    """

    units: ClassVar = {"B": 1.0, "kB": 1e3, "KiB": 2.0**10, "MB": 1e6, "MiB": 2.0**20, "GB": 1e9, "GiB": 2.0**30}
    noun = "a number of bytes"
    example = "512MiB"
    largest = "1000000000GB"


class Operations(Quantity):
    """A number of floating-point operations; a multiplication and an addition are two."""

    units: ClassVar = {"FLOP": 1.0, "kFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15}
    noun = "a number of floating-point operations"
    example = "24.5GFLOP"
    largest = "1000000000PFLOP"


class Power(Quantity):
    """An electric power in watts."""

    units: ClassVar = {"W": 1.0, "kW": 1e3}
    noun = "a power"
    example = "700W"
    largest = "1000000kW"


class Throughput(Quantity):
    """A compute speed in training samples per second."""

    units: ClassVar = {"/s": 1.0}
    noun = "a throughput"
    example = "4000/s"
    largest = "1000000000000/s"
