"""Traces of failures in a scenario document, whose failures are added to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compose.data_files.failure_trace import read_failure_trace
from compose.scenario_files.problems import ScenarioProblem
from compose.scenario_files.user_files.file_references import resolve_data_file
from compose.scenario_files.user_files.swept_sections import value_at
from compose.scenario_files.yaml_document import YamlDocument
from services.learning.datasets.files import DataFileError
from services.schema.conflicts import KeyPath


def resolve_failure_traces(document: YamlDocument, folder: Path) -> Iterator[ScenarioProblem]:
    """Read every trace of failures of an event, add its failures in place, and yield the problems."""
    for law, position in _find_failure_traces(document.data):
        try:
            law.update(_resolve_failure_trace(law, folder))
        except DataFileError as error:
            key = ".".join(map(str, position))
            yield ScenarioProblem(document.find_position_of_key(position), key, str(error))


def _find_failure_traces(document: Any) -> Iterator[tuple[dict[str, Any], KeyPath]]:
    """Yield each law of an event that is a trace, with the position of its key `file`."""
    events = value_at(document, ("events",))
    for number, event in enumerate(events if isinstance(events, list) else []):
        law = value_at(event, ("at", "law"))
        if isinstance(law, dict) and law.get("kind") == "trace" and isinstance(law.get("file"), str):
            yield law, ("events", number, "at", "law", "file")


def _resolve_failure_trace(law: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the keys of a trace that its file determines: absolute path, digest and failures.

    If the scenario has digest and failures already, and the file is missing, the failures are kept.
    """
    declared = {key: law[key] for key in ("file", "sha256") if law.get(key) is not None}
    resolved: dict[str, Any] = resolve_data_file("file", declared, folder)
    path = Path(resolved["file"])
    if law.get("recorded") and not path.exists():
        return resolved
    return resolved | {"recorded": read_failure_trace(path)}
