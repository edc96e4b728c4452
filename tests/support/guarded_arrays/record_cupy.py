"""Program that records the names and parameters of CuPy's functions. Guarded arrays have no other functions.

`python tests/support/guarded_arrays/record_cupy.py` writes `cupy_functions.json` beside this file. It needs CuPy, in
the oldest version that `pyproject.toml` allows, but no GPU.
"""

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = ("", "fft", "lib", "lib.stride_tricks", "linalg", "random")
UFUNC_KEYWORDS = "/, *, out=None, dtype=None, casting=None"
RECORD_FILE = Path(__file__).with_name("cupy_functions.json")


def record_cupy(cupy: ModuleType) -> dict[str, Any]:
    """Return the names that CuPy has, each with its parameters; None for names that are not functions."""
    functions = {
        ".".join(filter(None, (module, name))): parameters_of(value)
        for module in MODULES
        for name, value in public_members(submodule(cupy, module))
    }
    return {
        "version": cupy.__version__,
        "functions": functions,
        "ufuncs": [name for name, value in public_members(cupy) if is_ufunc(value)],
        "array_members": {name: parameters_of(value) for name, value in public_members(cupy.ndarray)},
        "generator_members": {name: parameters_of(value) for name, value in public_members(cupy.random.Generator)},
    }


def submodule(cupy: ModuleType, path: str) -> ModuleType:
    """Return a module inside CuPy, or CuPy itself for an empty path."""
    module = cupy
    for name in filter(None, path.split(".")):
        module = getattr(module, name)
    return module


def public_members(owner: object) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a module or class, except modules."""
    members = ((name, getattr(owner, name)) for name in sorted(dir(owner)) if not name.startswith("_"))
    return ((name, member) for name, member in members if not isinstance(member, ModuleType))


def is_ufunc(member: object) -> bool:
    return type(member).__name__ == "ufunc"


def parameters_of(member: Any) -> str | None:
    """Return the parameters of a function as text, each default replaced by None; None if it is not a function."""
    if isinstance(member, type) or not callable(member):
        return None
    if is_ufunc(member):
        inputs = [f"x{number}" for number in range(member.nin)]
        outputs = [f"out{number}=None" for number in range(member.nout)]
        return ", ".join([*inputs, *outputs, UFUNC_KEYWORDS])
    signature = signature_of(member)
    if signature is None:
        sys.stderr.write(f"no parameters are known: {member}\n")
        return None
    parameters = [part for part in signature.parameters.values() if part.name != "self"]
    parameters = [
        part.replace(annotation=part.empty, default=part.empty if part.default is part.empty else None)
        for part in parameters
    ]
    return str(inspect.Signature(parameters))[1:-1]


def signature_of(function: Any) -> inspect.Signature | None:
    """Return the signature of a function.

    CuPy's compiled functions state their parameters in the first line of their documentation.
    """
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        first_line = (function.__doc__ or "").partition("\n")[0].partition(" -> ")[0]
    _, opening, parameters = first_line.partition("(")
    if not opening:
        return None
    parts = [part.partition("=") for part in parameters.removesuffix(")").split(", ") if part]
    text = ", ".join(name.split()[-1] + ("=None" if default else "") for name, default, _ in parts)
    return inspect.signature(eval(f"lambda {text}: None"))  # noqa: S307 - the documentation of an installed package


if __name__ == "__main__":
    import cupy

    RECORD_FILE.write_text(json.dumps(record_cupy(cupy), indent=1) + "\n")
