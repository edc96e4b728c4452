"""Facts about the Python interpreter that runs a user's command."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

from compose.runs.host_program import run_host_program
from services.scenario.commands.environment_facts import CommandInterpreter
from services.schema.errors import UserError
from services.schema.message_paths import path_for_messages

QUERY = """
import importlib.util, json, pathlib, platform, sys, sysconfig

packages = list(dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]))
missing, outside = [], {}


def is_in_container(place):
    if any(place.is_relative_to(folder) for folder in packages):
        return True
    is_package = "site-packages" in place.parts or "dist-packages" in place.parts
    return place.is_relative_to(sysconfig.get_path("stdlib")) and not is_package


for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    if spec is None:
        missing.append(name)
        continue
    places = spec.submodule_search_locations or ([spec.origin] if spec.has_location else [])
    for place in [pathlib.Path(place) for place in places][:1]:
        if not is_in_container(place):
            outside[name] = str(place.parent)
print(json.dumps({"version": platform.python_version(), "packages": packages, "missing": missing, "outside": outside}))
"""
QUERY_TIMEOUT_S = 30.0


@cache
def describe_interpreter(path: Path | None, required_modules: tuple[str, ...] = ()) -> CommandInterpreter:
    """Return the version and the package folders of an interpreter; without a path, of the one that runs Ensayo.

    Args:
        path: file of the interpreter.
        required_modules: names of modules without dots, which the interpreter looks for without importing them.

    Raises:
        UserError: the file is no Python interpreter that works.
    """
    executable = Path(sys.executable) if path is None else path
    if not executable.is_file():
        raise UserError(f"{path_for_messages(executable)}: file not found; write the path of an interpreter")
    try:
        process = run_host_program([executable, "-I", "-c", QUERY, *required_modules], QUERY_TIMEOUT_S)
        facts = json.loads(process.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise UserError(
            f"{path_for_messages(executable)}: not a working Python interpreter; write for example .venv/bin/python"
        ) from error
    packages = tuple(folder for folder in facts["packages"] if Path(folder).is_dir())
    return CommandInterpreter(
        path=str(executable),
        version=facts["version"],
        packages=packages,
        missing=tuple(facts["missing"]),
        outside=facts["outside"],
    )
