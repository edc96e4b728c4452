"""The recorded names and parameters of CuPy, and calls that accept no other parameters."""

import json
from collections.abc import Callable
from functools import cache
from inspect import Signature, signature
from pathlib import Path
from typing import Any

RECORD = json.loads(Path(__file__).with_name("cupy_functions.json").read_text(encoding="utf-8"))
FUNCTIONS: dict[str, str | None] = RECORD["functions"]  # dotted name -> parameters; None: not a function
UFUNCS: frozenset[str] = frozenset(RECORD["ufuncs"])
ARRAY_MEMBERS: dict[str, str | None] = RECORD["array_members"]
GENERATOR_MEMBERS: dict[str, str | None] = RECORD["generator_members"]


@cache
def signature_from_parameters(parameters: str) -> Signature:
    return signature(eval(f"lambda {parameters}: None"))  # noqa: S307 - the text comes from our own file


def check_arguments(name: str, parameters: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError for arguments that the function `name` of CuPy does not have."""
    try:
        signature_from_parameters(parameters).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"cupy {name}({parameters}): {error}") from error


def restrict_to_parameters(name: str, parameters: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises TypeError for arguments that CuPy does not have, and else calls `function`."""

    def checked_function(*args: Any, **kwargs: Any) -> Any:
        check_arguments(name, parameters, args, kwargs)
        return function(*args, **kwargs)

    return checked_function
