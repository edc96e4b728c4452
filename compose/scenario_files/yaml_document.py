"""Parser of YAML files that keeps the line of every key and list item, and writer of YAML text.

Values have the types of JSON, as in YAML 1.2: `1e-3` is a number, `on` and `12:30` are strings, and there are no dates.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod
from math import isinf
from sys import float_info, maxsize
from typing import Any

import numpy as np
import yaml

from compose.scenario_files.problems import ScenarioError, ScenarioProblem, SourcePosition
from services.schema.conflicts import KeyPath

LINE_WIDTH = 120  # of written lists and texts
TAG_PREFIX = "tag:yaml.org,2002:"
UNICODE_LINE_BREAKS = frozenset("\x85\u2028\u2029")
# Tag -> regular expression of its written form, decoder. The first expression that matches decides.
SCALAR_TYPES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "null": (r"~|null|Null|NULL|", lambda _: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]+", int),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    "str": (r"", str),
}
# The largest shipped scenario has about 200 keys and list items in 8 levels. Larger documents take seconds to read, and
# deeper ones exceed the recursion limit of Python.
MAX_YAML_NODES = 20_000
MAX_YAML_DEPTH = 50
MAX_NUMBER_LENGTH = 100  # Python does not convert a text of thousands of digits to an integer
SURROGATE = re.compile("[\ud800-\udfff]")
INCOMPLETE_CHARACTER = "an escape stands for an unpaired surrogate, which is no character; write the character itself"
TOO_MANY_NODES = (
    f"the document has more than {MAX_YAML_NODES:,} keys and list items, counting those that a YAML alias repeats; "
    "shorten it"
)
TOO_DEEP = f"sections and lists are nested more than {MAX_YAML_DEPTH} levels deep; reduce the nesting"


class YamlSizeError(yaml.MarkedYAMLError):
    """Error for YAML text that is valid, but beyond the limits on its size."""


class Yaml12Loader(yaml.SafeLoader):
    """PyYAML loader that recognises numbers, booleans and null by the rules of YAML 1.2."""

    yaml_implicit_resolvers: dict[str | None, Any] = {}  # noqa: RUF012 - PyYAML expects a class attribute

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.composed_node_count, self.nesting_depth = 0, 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next node of the text.

        Raises:
            YamlSizeError: the text has too many nodes, or the node is nested too deeply.
        """
        self.composed_node_count += 1
        self.nesting_depth += 1
        has_too_many_nodes = self.composed_node_count > 2 * MAX_YAML_NODES  # a key and its value are two nodes
        if has_too_many_nodes or self.nesting_depth > MAX_YAML_DEPTH + 1:  # the document itself is a node
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # PyYAML's stubs do not type it
            raise YamlSizeError(problem=TOO_MANY_NODES if has_too_many_nodes else TOO_DEEP, problem_mark=mark)
        node = super().compose_node(parent, index)
        self.nesting_depth -= 1
        return node

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        r"""Compose a text, number, boolean or null.

        Raises:
            MarkedYAMLError: an escape such as `\ud800` stands for an unpaired surrogate.
        """
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if SURROGATE.search(node.value):
            raise yaml.MarkedYAMLError(problem=INCOMPLETE_CHARACTER, problem_mark=node.start_mark)
        return node


class Yaml12Dumper(yaml.SafeDumper):
    """PyYAML writer that quotes each string which YAML 1.1 or YAML 1.2 would read as another type.

    Values of types that JSON does not have are errors, except tuples and values of NumPy.
    """

    yaml_representers = {  # noqa: RUF012 - PyYAML expects a class attribute
        value_type: represent
        for value_type, represent in yaml.SafeDumper.yaml_representers.items()
        if value_type in {str, int, float, bool, type(None), list, tuple, dict, None}  # None: all other types
    }

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - signature of PyYAML
        """Write a list or dict that occurs twice in full, not as an alias of its first occurrence."""
        return True

    def represent_numpy_value(self, value: Any) -> yaml.Node:
        """Write a number or an array of NumPy as a number or a list; such values come from sweeps in notebooks."""
        return self.represent_data(value.tolist())

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Write a text; quote one with a line break of Unicode, which PyYAML would read as a space."""
        style = '"' if UNICODE_LINE_BREAKS.intersection(text) else None
        return self.represent_scalar(TAG_PREFIX + "str", text, style)


Yaml12Dumper.add_representer(str, Yaml12Dumper.represent_text)
Yaml12Dumper.add_multi_representer(dict, Yaml12Dumper.represent_dict)  # subclasses, such as sections of `ensayo`
for numpy_type in (np.generic, np.ndarray):
    Yaml12Dumper.add_multi_representer(numpy_type, Yaml12Dumper.represent_numpy_value)
for name, (form, _) in SCALAR_TYPES.items():
    Yaml12Loader.add_implicit_resolver(TAG_PREFIX + name, re.compile(f"^(?:{form})$"), None)
    Yaml12Dumper.add_implicit_resolver(TAG_PREFIX + name, re.compile(f"^(?:{form})$"), None)


@dataclass(frozen=True)
class YamlDocument:
    """Content of a YAML file as JSON types, with the positions of its keys.

    Every key and list item has a position in the file.
    """

    data: Any
    positions: Mapping[KeyPath, SourcePosition]

    def find_position_of_key(self, key_path: KeyPath) -> SourcePosition:
        """Return the position of the key at `key_path` in the YAML file.

        If the key is absent, return the position of the innermost section around it.
        """
        return next(
            self.positions[key_path[:n]] for n in range(len(key_path), -1, -1) if key_path[:n] in self.positions
        )


def parse_yaml(text: str, file_name: str) -> YamlDocument:
    """Parse YAML text into a document with the position of every key.

    Args:
        text: YAML text.
        file_name: name of the file in messages.

    Raises:
        ScenarioError: the text is not valid YAML, is too large, or has features that scenarios do not support.
    """
    reader = _YamlNodeReader(file_name)
    try:
        node = yaml.compose(text, Yaml12Loader)
        data = reader.read_node(node, ()) if node else None
    except yaml.YAMLError as error:
        raise ScenarioError([_describe_syntax_error(error, file_name)]) from None
    if reader.problems:
        raise ScenarioError(reader.problems)
    return YamlDocument(data, {(): SourcePosition(file_name, 1)} | reader.positions)


def write_yaml(value: Any, origin: str, *, in_one_line: bool = False) -> str:
    """Return the YAML text of a Python value, such that `parse_yaml` returns an equal value.

    Args:
        value: text, number, boolean, None, or a list, dict or NumPy array of such values.
        origin: origin of the value in messages, such as "scenario dict".
        in_one_line: whether to write lists and dicts in one line, as in `[1, 2]`.

    Raises:
        ScenarioError: the value, or a value inside of it, has another type.
    """
    try:
        text = yaml.dump(
            value,
            Dumper=Yaml12Dumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=in_one_line,
            width=maxsize if in_one_line else LINE_WIDTH,
        )
    except yaml.representer.RepresenterError as error:
        wrong_value = error.args[-1]
        message = (
            f"{wrong_value!r} has the type {type(wrong_value).__name__}; allowed are text, numbers, booleans, None, "
            "lists and dicts; convert it, for example by str() or float()"
        )
        raise ScenarioError([ScenarioProblem(SourcePosition(origin), "", message)]) from None
    except RecursionError:
        message = "a list or dict contains itself; replace the inner one with its content"
        raise ScenarioError([ScenarioProblem(SourcePosition(origin), "", message)]) from None
    return text.removesuffix("...\n").removesuffix("\n") if in_one_line else text


def _describe_syntax_error(error: yaml.YAMLError, file_name: str) -> ScenarioProblem:
    """Convert a syntax error found by PyYAML to a ScenarioProblem."""
    if not isinstance(error, yaml.MarkedYAMLError):  # a character that YAML does not allow
        return ScenarioProblem(SourcePosition(file_name), "", f"not valid YAML: {' '.join(str(error).split())}")
    mark = error.problem_mark or error.context_mark
    position = SourcePosition(file_name, mark.line + 1 if mark else 0)
    if isinstance(error, YamlSizeError):
        return ScenarioProblem(position, "", str(error.problem))
    context = f" {error.context}" if error.context and error.problem else ""
    begin = f" that begins on line {error.context_mark.line + 1}" if context and error.context_mark else ""
    return ScenarioProblem(position, "", f"not valid YAML: {error.problem or error.context}{context}{begin}")


@dataclass
class _YamlNodeReader:
    """Converter from PyYAML nodes to Python data.

    It records the position of every node in the file.
    """

    file_name: str
    positions: dict[KeyPath, SourcePosition] = field(default_factory=dict)
    problems: list[ScenarioProblem] = field(default_factory=list)
    enclosing_nodes: list[yaml.Node] = field(default_factory=list)  # from the document to the node that is read

    @singledispatchmethod
    def read_node(self, node: Any, key_path: KeyPath) -> Any:  # noqa: ARG002 - the same signature as the methods below
        """Convert the PyYAML node at a key path of the document to Python data."""
        raise AssertionError(node)

    @read_node.register
    def _read_scalar(self, node: yaml.ScalarNode, key_path: KeyPath) -> Any:
        _, decode = SCALAR_TYPES.get(node.tag.removeprefix(TAG_PREFIX), (None, None))
        if decode and node.tag != f"{TAG_PREFIX}str" and len(node.value) > MAX_NUMBER_LENGTH:
            return self._add_problem(
                node, key_path, f"the number has more than {MAX_NUMBER_LENGTH} characters; write a shorter one"
            )
        if not decode:
            return self._add_unknown_tag(node, key_path)
        try:
            value = decode(node.value)
        except ValueError:  # only an explicit tag, such as `!!int five`, selects a decoder that does not match
            message = f"{node.value!r} does not have the type of its YAML tag {node.tag}; remove the tag"
            return self._add_problem(node, key_path, message)
        if isinstance(value, float) and isinf(value):
            message = f"the number {node.value} is too large; write one below {float_info.max:.1e}"
            return self._add_problem(node, key_path, message)
        return value

    @read_node.register
    def _read_sequence(self, node: yaml.SequenceNode, key_path: KeyPath) -> Any:
        if node.tag != TAG_PREFIX + "seq":
            return self._add_unknown_tag(node, key_path)
        return [self._read_value_of_key(item, item, (*key_path, k)) for k, item in enumerate(node.value)]

    @read_node.register
    def _read_mapping(self, node: yaml.MappingNode, key_path: KeyPath) -> Any:
        if node.tag != TAG_PREFIX + "map":
            return self._add_unknown_tag(node, key_path)
        scalars = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
        if len(scalars) < len(node.value):
            return self._add_problem(node, key_path, "a key must be a word, not a list or a section")
        return {key.value: self._read_value_of_key(key, value, (*key_path, key.value)) for key, value in scalars}

    def _read_value_of_key(self, key_node: yaml.Node, value_node: yaml.Node, key_path: KeyPath) -> Any:
        """Convert the PyYAML node of a key's value to Python data.

        The position of the key in the file is recorded.
        """
        if first_position := self.positions.get(key_path):
            return self._add_problem(key_node, key_path, f"duplicate key, first at {first_position}; remove one")
        self.positions[key_path] = self._node_position(key_node)
        if value_node in self.enclosing_nodes:
            message = "a YAML alias contains itself; replace the alias with its content"
            return self._add_problem(key_node, key_path, message)
        if too_large := self._explain_too_large_document(key_path):
            self._add_problem(key_node, key_path, too_large)
            raise ScenarioError(self.problems)
        self.enclosing_nodes.append(value_node)
        value = self.read_node(value_node, key_path)
        self.enclosing_nodes.pop()
        return value

    def _explain_too_large_document(self, key_path: KeyPath) -> str:
        """Return why the document is too large with all aliases replaced; the result is empty if it is not.

        The keys read so far are counted, and `key_path` is one of them.
        """
        if len(key_path) > MAX_YAML_DEPTH:
            return TOO_DEEP
        return TOO_MANY_NODES if len(self.positions) > MAX_YAML_NODES else ""

    def _add_unknown_tag(self, node: yaml.Node, key_path: KeyPath) -> None:
        self._add_problem(node, key_path, f"the YAML tag {node.tag} is not supported; remove it")

    def _add_problem(self, node: yaml.Node, key_path: KeyPath, message: str) -> None:
        self.problems.append(ScenarioProblem(self._node_position(node), ".".join(map(str, key_path)), message))

    def _node_position(self, node: yaml.Node) -> SourcePosition:
        return SourcePosition(self.file_name, node.start_mark.line + 1)
