"""Command and environment of Python programs of this installation that run as processes of their own."""

import os
import sys
from pathlib import Path

import services


def python_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module with the interpreter of this process.

    Without -P, Python looks first in the current folder, where a user may have a package `services` or `compose`, too.
    """
    return (sys.executable, "-P", "-m", module)


def python_environment() -> dict[str, str]:
    """Return the environment variables of this process, with a PYTHONPATH for programs that it starts.

    They then import the same packages as this process, whichever checkout is the installed one.
    """
    packages_folder = str(Path(services.__path__[0]).parent)
    python_path = os.pathsep.join(filter(None, [packages_folder, os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": python_path}
