"""Files of the commands in a scenario document."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compose.commands.references import RESOLVED_COMMAND_KEYS, CommandReferenceError, resolve_command
from compose.scenario_files.problems import ScenarioProblem
from compose.scenario_files.user_files.swept_sections import convert_to_cases, swept_paths, value_at
from compose.scenario_files.yaml_document import YamlDocument
from services.schema.conflicts import KeyPath


def resolve_commands(document: YamlDocument, folder: Path) -> Iterator[ScenarioProblem]:
    """Resolve the files of every command in place, also those that a sweep sets, and yield the problems."""
    yield from _find_swept_command_keys(document)
    for workload, position in _find_workloads(document.data):
        if not isinstance(workload, dict) or workload.get("kind") != "command":
            continue
        try:
            resolve_command(workload, folder, document.data.get("engine"))
        except CommandReferenceError as error:
            key_path = (*position, error.key) if position == ("workload",) else position
            yield ScenarioProblem(document.find_position_of_key(key_path), f"workload.{error.key}", str(error))


def _find_swept_command_keys(document: YamlDocument) -> Iterator[ScenarioProblem]:
    """Yield a problem for each key that a sweep sets alone, although it is resolved with the whole command."""
    sweep = value_at(document.data, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for path in sorted(swept_paths(str(name), axis) & {f"workload.{key}" for key in RESOLVED_COMMAND_KEYS}):
            message = "can't be swept alone; sweep the whole workload, with a case for each command"
            yield ScenarioProblem(document.find_position_of_key(("sweep", name)), path, message)


def _find_workloads(document: Any) -> Iterator[tuple[Any, KeyPath]]:
    """Yield the workload of a document and each workload that a sweep sets, with its position.

    Values of a sweep that are workloads become cases, as for references to files.
    """
    yield value_at(document, ("workload",)), ("workload",)
    sweep = value_at(document, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for case in convert_to_cases(frozenset(["workload"]), sweep, str(name), axis):
            yield case.get("workload"), ("sweep", name)
