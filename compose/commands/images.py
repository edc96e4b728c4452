"""Images of users, in whose Python commands run: checks before anything starts, and facts for the plan."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

from compose.commands.image_programs import run_in_container
from compose.engines.containers.node_image.build import build_command_image
from compose.engines.containers.node_image.packages import IMAGE_PYTHON
from compose.runs.host_program import run_host_program
from services.scenario.commands.environment_facts import CommandImage, CommandInterpreter
from services.schema.errors import UserError

TIMEOUT_S = 120.0
ROOT = "0:0"  # the node image makes folders readable that only root can read in the image of the user
FACTS_QUERY = (
    "import importlib.util, json, os, platform, sys;"
    "print(json.dumps({'path': sys.executable, 'version': platform.python_version(), 'libc': platform.libc_ver()[0],"
    "'packages': [path for path in sys.path if path.endswith(('site-packages', 'dist-packages'))],"
    "'has_venv': importlib.util.find_spec('venv') is not None,"
    "'search_path': os.environ.get('PATH', ''), 'python_path': os.environ.get('PYTHONPATH', '')}))"
)
IMPORT_QUERY = """
import importlib, json, sys
missing, failed = [], {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            missing.append(name)
        else:
            failed[name] = str(error)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}"
print()
print(json.dumps({"missing": missing, "failed": failed}))
"""


def describe_image(image: str, required_modules: tuple[str, ...]) -> tuple[CommandInterpreter, CommandImage]:
    """Return the facts about an image of the user and its Python; build the node image on it unless it exists.

    Args:
        image: tag or id of an image on the Docker engine.
        required_modules: names of modules, which are imported in a container without network.

    Raises:
        UserError: the image does not exist, or can't run the command.
        HostError: the node image can't be built on it.
    """
    return _describe_image_id(image, _find_image_id(image), required_modules)


@cache
def _describe_image_id(
    image: str, image_id: str, required_modules: tuple[str, ...]
) -> tuple[CommandInterpreter, CommandImage]:
    facts = _read_python_facts(image, image_id)
    found = CommandImage(id=image_id, search_path=facts["search_path"], python_path=facts["python_path"])
    node_image = build_command_image(image_id, _report)
    interpreter = CommandInterpreter(path=facts["path"], version=facts["version"], packages=tuple(facts["packages"]))
    missing = _import_modules(image, node_image, interpreter, found, required_modules)
    return interpreter.model_copy(update={"missing": missing}), found


def _find_image_id(image: str) -> str:
    process = run_host_program(["docker", "image", "inspect", "--format={{.Id}}", "--", image])
    if process.returncode == 0:
        return process.stdout.strip()
    message = _last_line(process)
    if "no such image" in message.lower():
        raise UserError(f"{image}: the Docker engine has no such image; build it, or run: docker pull {image}")
    raise UserError(
        f"{image}: the image can't be found, because docker ends with: {message}; start Docker, or declare the "
        "environment of the command with requirements or python in place of image"
    )


def _read_python_facts(image: str, image_id: str) -> dict[str, Any]:
    """Return facts about `python3` of an image.

    Raises:
        UserError: it can't be run, or nodes can't use it.
    """
    process = _run(image, image_id, ["python3", "-c", FACTS_QUERY], user=ROOT)
    if process.returncode:
        raise UserError(
            f"{image}: python3 can't be run in this image: {_last_line(process)}; the image needs Python "
            f"{IMAGE_PYTHON} on its PATH, and the usual programs of Debian"
        )
    facts: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    remedy = f"base the image on Debian with Python {IMAGE_PYTHON}, such as python:{IMAGE_PYTHON}-slim-bookworm"
    if ".".join(facts["version"].split(".")[:2]) != IMAGE_PYTHON:
        raise UserError(f"{image}: its python3 is Python {facts['version']}; {remedy}")
    if facts["libc"] != "glibc":
        raise UserError(f"{image}: its C library is not glibc, for which the packages of nodes are built; {remedy}")
    if not facts["has_venv"]:
        raise UserError(f"{image}: its python3 has no module venv; install it, or {remedy}")
    return facts


def _import_modules(
    image: str, node_image: str, interpreter: CommandInterpreter, facts: CommandImage, modules: tuple[str, ...]
) -> tuple[str, ...]:
    """Import modules as the command does on a node, and return the names of those that are not installed.

    Raises:
        UserError: a module is installed, and its import fails.
    """
    if not modules:
        return ()
    environment = {"PATH": facts.search_path, "PYTHONPATH": facts.python_path, "HOME": "/tmp"}  # noqa: S108 - in a container
    process = _run(image, node_image, [interpreter.path, "-c", IMPORT_QUERY, *modules], environment=environment)
    if process.returncode:
        raise UserError(f"{image}: workload.requires can't be imported in this image: {_last_line(process)}")
    result = json.loads(process.stdout.strip().splitlines()[-1])
    for name, error in result["failed"].items():
        raise UserError(f"{image}: import {name} fails in this image: {error}; correct the image, or requires")
    return tuple(result["missing"])


def _run(image: str, image_id: str, words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    try:
        return run_in_container(image_id, words, TIMEOUT_S, **options)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{image}: a check in this image has not ended within {TIMEOUT_S:g} s; try it again") from error


def _last_line(process: subprocess.CompletedProcess[str]) -> str:
    return (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]


def _report(message: str) -> None:
    """Show a message on the terminal; the standard output is for results."""
    sys.stderr.write(f"ensayo: {message}\n")
