"""FILE:NAME of classes and functions that are passed as Python objects."""

import sys
from hashlib import sha256
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any

from compose.host.host_facts import user_cache_folder
from ensayo.declaration.cell_source import collect_source, import_line, is_installed
from services.schema.errors import HostError, UserError, os_error_cause


def is_user_object(value: Any) -> bool:
    """Return whether a value is a class or a function."""
    return isclass(value) or isfunction(value)


def reference_to(definition: Any) -> dict[str, str]:
    """Return the reference to a class or function, as a scenario has it.

    A definition in a file of the user is imported from this file. One in a notebook cell, or in the script that is
    running, is written to a file in the user's cache, with everything that it uses; one of an installed package is
    imported there.

    Raises:
        UserError: the definition can't be written to a file.
        HostError: the file can't be written.
    """
    module = sys.modules.get(definition.__module__)
    file = getattr(module, "__file__", None)
    if definition.__module__ == "__main__" or file is None:
        text = collect_source(definition)
    elif not is_installed(definition.__module__):
        return {"file": str(Path(file).resolve()), "name": definition.__name__}
    elif line := import_line(definition.__name__, definition):
        text = f"{line}\n"
    else:
        raise UserError(f"{definition.__qualname__} can't be imported from {definition.__module__}; pass another class")
    return {"file": str(_write_module(definition.__name__, text)), "name": definition.__name__}


def _write_module(name: str, text: str) -> Path:
    """Write a module to the cache, in a folder of its own, unless it exists."""
    folder = user_cache_folder().resolve() / "notebook" / sha256(text.encode()).hexdigest()
    path = folder / f"{name.lower()}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(".partial")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise HostError(
            f"{path}: the source of {name} can't be written: {os_error_cause(error)}; free disk space, or name another "
            "folder in XDG_CACHE_HOME"
        ) from error
    return path
