"""How does one key of a scenario get another value without another file?"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from compose.document import Document, parse
from compose.problem import Place
from services.errors import UserError
from services.sweep import SHORT


def override(document: Document, settings: Mapping[str, str]) -> Document:
    """The document with each dotted path set to the value that its YAML says; what is set is not swept any more."""
    data, places = deepcopy(document.data), dict(document.places)
    for name, text in settings.items():
        path, argument = SHORT.get(name, name), f"--set {name}={text}"
        _set(data, path, parse(text, argument).data, argument)
        places[tuple(path.split("."))] = Place(argument)
        _unsweep(data, path)
    return Document(data, places)


def _set(data: Any, path: str, value: Any, argument: str) -> None:
    *parents, last = path.split(".")
    for key in parents:
        data = data.setdefault(key, {}) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise UserError(f"{argument}: {path} leads nowhere")
    data[last] = value


def _unsweep(data: Any, path: str) -> None:
    sweep = data.get("sweep")
    for name in [name for name in sweep or () if SHORT.get(name, name) == path]:
        del sweep[name]
