"""Traces of compute times in a scenario document, whose factors are added to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compose.data_files.speed_trace import read_speed_trace
from compose.scenario_files.problems import ScenarioProblem
from compose.scenario_files.user_files.file_references import resolve_data_file
from compose.scenario_files.user_files.swept_sections import convert_to_cases, swept_paths, value_at
from compose.scenario_files.yaml_document import YamlDocument
from services.learning.datasets.files import DataFileError
from services.schema.conflicts import KeyPath

SWEPT_TRACE_KEYS = tuple(f".variation.{key}" for key in ("file", "values", "sha256", "recorded"))


def resolve_speed_traces(document: YamlDocument, folder: Path) -> Iterator[ScenarioProblem]:
    """Read every trace of compute times, add its factors in place, also in a sweep, and yield the problems."""
    sweep = value_at(document.data, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for path in sorted(path for path in swept_paths(str(name), axis) if path.endswith(SWEPT_TRACE_KEYS)):
            message = "can't be swept alone; sweep the whole variation, with a case for each trace"
            yield ScenarioProblem(document.find_position_of_key(("sweep", name)), path, message)
    for variation, position in _find_speed_traces(document.data):
        try:
            variation.update(_resolve_speed_trace(variation, folder))
        except DataFileError as error:
            key = position[1] if position[0] == "sweep" else ".".join(map(str, position))
            yield ScenarioProblem(document.find_position_of_key(position), str(key), str(error))


def _find_speed_traces(document: Any) -> Iterator[tuple[dict[str, Any], KeyPath]]:
    """Yield each variation of compute times by a trace, with the position of its key `file` or of its sweep axis."""
    yield from _traces_in(value_at(document, ("cluster",)), ("cluster",))
    sweep = value_at(document, ("sweep",))
    for name, axis in [*(sweep if isinstance(sweep, dict) else {}).items()]:
        if any(_traces_in(axis, ())):
            for case in convert_to_cases(frozenset(swept_paths(str(name), axis)), sweep, str(name), axis):
                yield from ((variation, ("sweep", name)) for variation, _ in _traces_in(case, ()))


def _traces_in(section: Any, position: KeyPath) -> Iterator[tuple[dict[str, Any], KeyPath]]:
    if isinstance(section, dict) and section.get("kind") == "trace" and isinstance(section.get("file"), str):
        yield section, (*position, "file")
        return
    items = section.items() if isinstance(section, dict) else enumerate(section) if isinstance(section, list) else ()
    for key, value in items:
        if key != "law":  # of an event, whose trace has failures
            yield from _traces_in(value, (*position, key))


def _resolve_speed_trace(variation: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the keys of a trace that its file determines: absolute path, digest and factors.

    If the scenario has digest and factors already, and the file is missing, the factors are kept.
    """
    declared = {key: variation[key] for key in ("file", "sha256") if variation.get(key) is not None}
    resolved: dict[str, Any] = resolve_data_file("file", declared, folder)
    path = Path(resolved["file"])
    if variation.get("recorded") and not path.exists():
        return resolved
    return resolved | {"recorded": read_speed_trace(path, are_durations=variation.get("values") == "durations")}
