"""Virtual environments made of users' requirements files, in the user's cache.

An environment is complete when the record of its packages lies beside it. The record is written last, so that an
environment whose build was interrupted is never used; the next build replaces it.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

from pydantic import ValidationError

from compose.commands.interpreter import describe_interpreter
from compose.engines.containers.node_image.packages import IMAGE_PYTHON
from compose.host.folder_lock import lock_folder
from compose.host.host_facts import user_cache_folder
from compose.runs.host_program import run_host_program
from services.scenario.commands.environment_facts import InstalledRequirements
from services.schema.errors import HostError, UserError, os_error_cause
from services.schema.message_paths import path_for_messages

SHOWN_LINES = 3  # of pip's message
# Containers run as a user of their own, who must be able to read the packages. The variables would add other packages.
SHELL_SCRIPT = 'umask 022; unset PYTHONPATH PYTHONHOME; cd "$0" && exec "$@"'
INCLUDED_FILE = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*([^\s=#]+)")
LOCAL_PATH = re.compile(r"\s*(?:-f|-e|--find-links|--editable)\b|file:|(?<![:/\w])[\w.~-]*/|\.(?:whl|zip|tar\.gz)\b")
WEB_ADDRESS = re.compile(r"\w*\+?https?://\S+")


class PreparedEnvironment(NamedTuple):
    """Virtual environment with the packages of a requirements file."""

    python: Path  # its interpreter
    installed: InstalledRequirements


def prepare_environment(requirements: Path) -> PreparedEnvironment:
    """Return the environment with the packages of a requirements file; make it with pip unless it exists.

    It is found again by the texts of the file and of the files that it includes, the version of Python and the
    platform; if a text names files of this host, also by the folder of the file.

    Raises:
        UserError: the file can't be read, or pip can't install its packages.
        HostError: the environment can't be made on this host.
    """
    texts = list(_read_texts(requirements, set()))
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    base_python = _choose_base_python()
    is_local = any(_names_local_files(line) for text in texts for line in text.splitlines())
    inputs = [digest, describe_interpreter(base_python).version, sysconfig.get_platform()]
    inputs += [str(requirements.parent)] if is_local else []
    key = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
    folder = user_cache_folder().resolve() / "environments" / key
    if installed := _read_record(folder):
        return PreparedEnvironment(_python_path(folder), installed)
    with lock_folder(folder, "virtual environment", _report):
        installed = _read_record(folder) or _build(folder, requirements, base_python, digest)
    return PreparedEnvironment(_python_path(folder), installed)


def is_intact(python: Path, installed: InstalledRequirements) -> bool:
    """Return whether the environment of an interpreter is still in the cache, with the same packages."""
    return _read_record(python.parents[2]) == installed


def _choose_base_python() -> Path:
    """Return the interpreter from which environments are made.

    Containers can use packages for the Python of the node image only, so this version is taken if the host has it.
    """
    if sysconfig.get_python_version() == IMAGE_PYTHON:
        return Path(sys.executable)
    return Path(shutil.which(f"python{IMAGE_PYTHON}") or sys.executable)


def _read_texts(path: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the text of a requirements file and of each file that it includes; pip reports missing included files."""
    place = path_for_messages(path)
    seen.add(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{place}: file not found; write the path of a requirements file of pip") from error
    except OSError as error:
        raise UserError(f"{place}: the requirements file can't be read: {os_error_cause(error)}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: the requirements file is not UTF-8 text; save it as UTF-8") from error
    yield text
    for line in text.splitlines():
        match = INCLUDED_FILE.match(line)
        included = Path(os.path.abspath(path.parent / match[1])) if match else path  # noqa: PTH100 - as pip, without links
        if included not in seen and included.is_file():
            yield from _read_texts(included, seen)


def _names_local_files(line: str) -> bool:
    """Return whether a line of a requirements file names a file or folder of this host."""
    content = WEB_ADDRESS.sub("", re.sub(r"(^|\s)#.*", "", line))
    return INCLUDED_FILE.match(content) is None and LOCAL_PATH.search(content) is not None


def _python_path(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


def _record_path(folder: Path) -> Path:
    return folder / "packages.json"


def _read_record(folder: Path) -> InstalledRequirements | None:
    """Return the record of a complete environment; None if there is none, or its interpreter is gone."""
    try:
        installed = InstalledRequirements.model_validate_json(_record_path(folder).read_bytes())
    except (OSError, ValidationError):
        return None
    return installed if _python_path(folder).is_file() else None


def _build(folder: Path, requirements: Path, base_python: Path, digest: str) -> InstalledRequirements:
    """Make an environment in a locked folder; remove its files if that fails or is interrupted."""
    _report(f"installing the packages of {path_for_messages(requirements)} into {folder}")
    _remove_environment(folder)
    try:
        packages = _install(folder / "venv", requirements, base_python)
        installed = InstalledRequirements(sha256=digest, packages=packages)
        partial = folder / "packages.partial"
        partial.write_text(installed.model_dump_json(indent=1), encoding="utf-8")
        partial.replace(_record_path(folder))
    except BaseException:
        _remove_environment(folder)
        raise
    return installed


def _remove_environment(folder: Path) -> None:
    _record_path(folder).unlink(missing_ok=True)
    shutil.rmtree(folder / "venv", ignore_errors=True)


def _install(environment: Path, requirements: Path, base_python: Path) -> tuple[str, ...]:
    """Install the packages of a requirements file into a new environment, and return the lines of `pip freeze`."""
    made = _run(environment.parent, base_python, "-I", "-m", "venv", environment)
    if made.returncode:
        raise HostError(
            f"{base_python}: a virtual environment can't be made of this Python: {_last_lines(made)}; install its "
            "modules venv and ensurepip (Debian: apt-get install python3-venv)"
        )
    pip: list[str | Path] = [
        environment / "bin" / "python",
        "-I",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
    ]
    process = _run(requirements.parent, *pip, "install", "-qq", "--requirement", requirements)
    if process.returncode:
        raise UserError(
            f"{path_for_messages(requirements)}: pip can't install these packages: {_last_lines(process)}; correct the "
            "file, connect this host to the package index, or name another index in PIP_INDEX_URL"
        )
    frozen = _run(requirements.parent, *pip, "freeze")
    if frozen.returncode:
        raise HostError(f"{environment}: pip can't list the installed packages: {_last_lines(frozen)}")
    return tuple(frozen.stdout.split("\n")[:-1])


def _run(folder: Path, *command: str | Path) -> CompletedProcess[str]:
    return run_host_program(["sh", "-c", SHELL_SCRIPT, folder, *command])


def _last_lines(process: CompletedProcess[str]) -> str:
    """Return the last lines that a program has printed, as one line."""
    lines = [line.strip() for line in (process.stderr.strip() or process.stdout).splitlines() if line.strip()]
    return " | ".join(lines[-SHOWN_LINES:]) or f"exit code {process.returncode} without a message"


def _report(message: str) -> None:
    """Show a message on the terminal; the standard output is for results."""
    sys.stderr.write(f"ensayo: {message}\n")
