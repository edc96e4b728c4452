"""Types of the values in a command workload, and their validation."""

import re
import shlex
from string import Formatter
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _check_pattern(pattern: str) -> str:
    """Return a regular expression unchanged; raise ValueError unless it is valid and has one group."""
    groups = re.compile(_check_expression(pattern)).groups
    if groups != 1:
        raise ValueError(f"{pattern!r} needs one group for the number, such as 'loss=(\\S+)', not {groups}")
    return pattern


def _check_expression(expression: str) -> str:
    """Return a regular expression unchanged; raise ValueError unless it is valid."""
    try:
        re.compile(expression)
    except re.error as error:
        raise ValueError(f"{expression!r} is not a regular expression: {error}") from error
    return expression


def _split_command(command: object) -> object:
    """Return the words of a command that is written as one text; return other values as they are."""
    if isinstance(command, list):
        return tuple(command)
    if not isinstance(command, str):
        return command
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise ValueError(f"{command!r} can't be split into words: {error}") from error


CommandWords: TypeAlias = Annotated[
    tuple[str | int | float, ...],
    BeforeValidator(_split_command, json_schema_input_type=str | tuple[str | int | float, ...]),
]


def _check_name(name: str) -> str:
    """Return a name unchanged; raise ValueError unless it may be the name of a module or variable."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(f"{name!r} is not allowed; use letters, digits and _, with no digit at the start")
    return name


def names_in_braces(word: object) -> list[str]:
    """Return the names in braces in a word of a command; raise ValueError if a brace has no partner."""
    return [name for _, name, _, _ in Formatter().parse(str(word)) if name is not None]


LineMark: TypeAlias = Annotated[str, AfterValidator(_check_expression)]
LinePattern: TypeAlias = Annotated[str, AfterValidator(_check_pattern)]
Name: TypeAlias = Annotated[
    str, AfterValidator(_check_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})
]
