"""Files and interpreter of a user's command in a scenario document, resolved when the scenario is loaded."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compose.commands.environments import is_intact, prepare_environment
from compose.commands.images import describe_image
from compose.commands.interpreter import describe_interpreter
from compose.own_code.copies import copy_to_cache
from compose.own_code.files import digest_code, read_code_files
from services.scenario.commands.command_workload import ENVIRONMENT_KEYS, CommandWorkload
from services.scenario.commands.value_types import NAME_PATTERN
from services.schema.errors import UserError
from services.schema.message_paths import path_for_messages

RESOLVED_COMMAND_KEYS = ("folder", *ENVIRONMENT_KEYS, "requires")  # from which interpreter, digest and copy follow
# Paths in containers that a mounted folder must not hide.
CONTAINER_PATHS = tuple(map(Path, ("/tmp", "/run/ensayo", "/run/secrets", "/opt/ensayo", "/usr/bin", "/proc", "/dev")))  # noqa: S108


class CommandReferenceError(UserError):
    """Error in a key of a command that names files."""

    def __init__(self, key: str, message: str) -> None:
        """Create the error with the key below `workload`."""
        super().__init__(message)
        self.key = key


def resolve_command(workload: dict[str, Any], scenario_folder: Path, engine: Any = None) -> None:
    """Make the paths of a command absolute in place, and add interpreter, digest and a copy of the code.

    Values of a wrong type, and an image without containers, are left unchanged: the check of the scenario rejects them.

    Args:
        workload: section of the scenario; changed in place.
        scenario_folder: folder of the scenario file, to which paths are relative.
        engine: engine that the scenario names; None if it names none.

    Raises:
        CommandReferenceError: folder or interpreter are missing or can't be used.
    """
    declared_folder, required = workload.get("folder", "."), _module_names(workload.get("requires", ()))
    environment = _declared_environment(workload)
    if not isinstance(declared_folder, str) or environment is None or required is None:
        return
    folder = Path(scenario_folder, declared_folder).resolve()
    _check_folder(folder)
    key, value = environment
    if key == "image" and engine not in (None, "docker"):
        return
    try:
        workload |= _ENVIRONMENT_RESOLVERS[key](value, scenario_folder, required)
    except UserError as error:
        raise CommandReferenceError(key, str(error)) from error
    try:
        contents = read_code_files("folder", folder)
    except UserError as error:
        raise CommandReferenceError("folder", str(error)) from error
    digest = digest_code(contents)
    _check_digest(folder, digest, workload.get("sha256"))
    workload |= {
        "folder": str(folder),
        "sha256": digest,
        "code": str(copy_to_cache(contents)) if contents else None,
    }


def _declared_environment(workload: dict[str, Any]) -> tuple[str, str] | None:
    """Return key and value of the declared environment, with `python: ""` for none; None if the keys are not valid."""
    declared = [(key, workload[key]) for key in ENVIRONMENT_KEYS if workload.get(key) is not None]
    if len(declared) > 1 or not all(isinstance(value, str) for _, value in declared):
        return None
    return declared[0] if declared else ("python", "")


def _resolve_python(python: str, scenario_folder: Path, required: tuple[str, ...]) -> dict[str, Any]:
    """Return the resolved keys of a command with a declared interpreter, or with the one that runs Ensayo."""
    # Not `resolve()`: the interpreter of a virtual environment is a link, and its path names the environment.
    interpreter = Path(os.path.abspath(scenario_folder / python)) if python else None  # noqa: PTH100 - see above
    return {"interpreter": describe_interpreter(interpreter, required).model_dump(mode="json")}


def _resolve_requirements(requirements: str, scenario_folder: Path, required: tuple[str, ...]) -> dict[str, Any]:
    """Return the resolved keys of a command with a requirements file, whose environment is made here."""
    path = Path(scenario_folder, requirements).resolve()
    environment = prepare_environment(path)
    return {
        "requirements": str(path),
        "interpreter": describe_interpreter(environment.python, required).model_dump(mode="json"),
        "installed_requirements": environment.installed.model_dump(mode="json"),
    }


def _resolve_image(image: str, _: Path, required: tuple[str, ...]) -> dict[str, Any]:
    """Return the resolved keys of a command with an image, in which containers check the requirements of nodes."""
    interpreter, facts = describe_image(image, required)
    return {"interpreter": interpreter.model_dump(mode="json"), "image_facts": facts.model_dump(mode="json")}


_ENVIRONMENT_RESOLVERS: Mapping[str, Callable[[str, Path, tuple[str, ...]], dict[str, Any]]] = {
    "python": _resolve_python,
    "requirements": _resolve_requirements,
    "image": _resolve_image,
}


def _module_names(declared: Any) -> tuple[str, ...] | None:
    """Return the declared names of modules as a tuple; None if they are no list of names."""
    is_list = isinstance(declared, list | tuple)
    return tuple(declared) if is_list and all(re.fullmatch(NAME_PATTERN, str(name)) for name in declared) else None


def check_command_files(workload: CommandWorkload) -> None:
    """Check that files and environment of a resolved command are those of the scenario: nodes read them in place.

    Raises:
        CommandReferenceError: a file has changed or is missing, or the environment of its requirements is gone.
    """
    folder = Path(workload.folder)
    _check_folder(folder)
    _check_digest(folder, digest_code(read_code_files("folder", folder)), workload.sha256)
    installed, interpreter = workload.installed_requirements, workload.interpreter
    if installed and interpreter and not is_intact(Path(interpreter.path), installed):
        message = f"{interpreter.path}: the environment of the run is not in the cache any more; start a new run"
        raise CommandReferenceError("requirements", message)


def _check_digest(folder: Path, digest: str, declared_digest: str | None) -> None:
    if declared_digest not in (None, digest):
        message = (
            f"{path_for_messages(folder)}: the Python files in this folder have the digest {digest}, not "
            f"{declared_digest}; restore the files, or remove sha256"
        )
        raise CommandReferenceError("sha256", message)


def _check_folder(folder: Path) -> None:
    place = path_for_messages(folder)
    if not folder.is_dir():
        raise CommandReferenceError("folder", f"{place}: folder not found; write the folder of the script")
    if any(path.is_relative_to(folder) for path in CONTAINER_PATHS):
        message = f"{place}: containers need this path for themselves; put the script into a folder of its own"
        raise CommandReferenceError("folder", message)
