"""What stands in a YAML file, and where?

Its types are those of JSON, as in YAML 1.2: `1e-3` is a number, `on` and `12:30` are strings, there are no dates.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

import yaml

from compose.scenario_files.problems import BadScenario, Place, Problem
from services.schema.conflicts import KeyPath

TAG = "tag:yaml.org,2002:"
SCALARS: Mapping[str, tuple[str, Callable[[str], Any]]] = {  # tag -> form, meaning; the first form that fits counts
    "null": (r"~|null|Null|NULL|", lambda _: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]+", int),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    "str": (r"", str),
}


class CoreLoader(yaml.SafeLoader):
    """PyYAML's parser with YAML 1.2's idea of what is a number."""

    yaml_implicit_resolvers: dict[str | None, Any] = {}  # noqa: RUF012 - PyYAML looks for it on the class


for name, (form, _) in SCALARS.items():
    CoreLoader.add_implicit_resolver(TAG + name, re.compile(f"^(?:{form})$"), None)


@dataclass(frozen=True)
class Document:
    """A file's content in JSON's types, and the place of every key and list item."""

    data: Any
    places: Mapping[KeyPath, Place]

    def place(self, path: KeyPath) -> Place:
        """Where `path` stands, or the innermost section around it that stands anywhere."""
        return next(self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places)


def parse(text: str, file: str) -> Document:
    """The document in `text`; raises BadScenario with every problem of its syntax."""
    reader = _Reader(file)
    try:
        node = yaml.compose(text, CoreLoader)
        data = reader.read(node, ()) if node else None
    except yaml.YAMLError as error:
        raise BadScenario([_syntax(error, file)]) from None
    except RecursionError:
        raise BadScenario([Problem(Place(file), "", "an alias contains itself")]) from None
    if reader.problems:
        raise BadScenario(reader.problems)
    return Document(data, {(): Place(file, 1)} | reader.places)


def _syntax(error: yaml.YAMLError, file: str) -> Problem:
    if not isinstance(error, yaml.MarkedYAMLError):  # a character that no YAML may hold
        return Problem(Place(file), "", f"not YAML: {' '.join(str(error).split())}")
    mark = error.problem_mark or error.context_mark
    return Problem(Place(file, mark.line + 1 if mark else 0), "", f"not YAML: {error.problem or error.context}")


@dataclass
class _Reader:
    """Turns nodes into data and remembers where each stood."""

    file: str
    places: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @singledispatchmethod
    def read(self, node: Any, path: KeyPath) -> Any:  # noqa: ARG002 - the signature of all readers
        """The data under `node`, which stands at `path`."""
        raise AssertionError(node)

    @read.register
    def _(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        _, decode = SCALARS.get(node.tag.removeprefix(TAG), (None, None))
        if decode:
            return decode(node.value)
        return self._complain(node, path, f"the tag {node.tag} is not supported")

    @read.register
    def _(self, node: yaml.SequenceNode, path: KeyPath) -> Any:
        return [self._child(item, item, (*path, k)) for k, item in enumerate(node.value)]

    @read.register
    def _(self, node: yaml.MappingNode, path: KeyPath) -> Any:
        scalars = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
        if len(scalars) < len(node.value):
            return self._complain(node, path, "keys are words, not lists or sections")
        return {key.value: self._child(key, value, (*path, key.value)) for key, value in scalars}

    def _child(self, mark: yaml.Node, node: yaml.Node, path: KeyPath) -> Any:
        """The data under `node`, whose place in the file is that of `mark`."""
        if first := self.places.get(path):
            return self._complain(mark, path, f"stands twice; first at {first}")
        self.places[path] = self._place(mark)
        return self.read(node, path)

    def _complain(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self._place(node), ".".join(map(str, path)), message))

    def _place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1)
