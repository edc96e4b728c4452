"""How does one key of a scenario get another value without another file?"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from compose.scenario_files.problems import Place
from compose.scenario_files.yaml_document import Document, parse
from services.scenario.sweep import PATH_ALIASES
from services.schema.conflicts import KeyPath
from services.schema.errors import UserError


def override(document: Document, settings: Mapping[str, str]) -> Document:
    """The document with each dotted path set to the value that its YAML says; what is set is not swept any more."""
    data, places = deepcopy(document.data), dict(document.places)
    for name, text in settings.items():
        path, argument = PATH_ALIASES.get(name, name), f"--set {name}={text}"
        places[_set(data, path, parse(text, argument).data, argument)] = Place(argument)
        _unsweep(data, path)
    return Document(data, places)


def _set(data: Any, path: str, value: Any, argument: str) -> KeyPath:
    """Set one key or list item below `data`; the path under which it stands there."""
    *parents, last = path.split(".")
    trace: list[str | int] = []
    for name in parents:
        trace.append(key := _key(data, name, argument))
        data = data.setdefault(key, {}) if isinstance(data, dict) else data[key]
    trace.append(key := _key(data, last, argument))
    data[key] = value
    return tuple(trace)


def _key(section: Any, name: str, argument: str) -> str | int:
    """What `name` is in a section: a key, or the place of an item that is there."""
    if isinstance(section, dict):
        return name
    if isinstance(section, list) and name.isdecimal() and int(name) < len(section):
        return int(name)
    there = f"; there are items 0 to {len(section) - 1}" if isinstance(section, list) and section else ""
    raise UserError(f"{argument}: leads nowhere at {name}{there}")


def _unsweep(data: Any, path: str) -> None:
    sweep = data.get("sweep")
    for name in [name for name in sweep or () if PATH_ALIASES.get(name, name) == path]:
        del sweep[name]
