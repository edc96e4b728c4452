"""Replacement of values of a scenario by arguments of the command line (`--set KEY=VALUE`) or of the Python API."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from compose.scenario_files.problems import SourcePosition
from compose.scenario_files.yaml_document import MAX_YAML_DEPTH, YamlDocument, parse_yaml, write_yaml
from services.scenario.sweep import KEY_PATH_ALIASES
from services.schema.conflicts import KeyPath
from services.schema.errors import UserError


def override_scenario_values(document: YamlDocument, values_by_key: Mapping[str, Any]) -> YamlDocument:
    """Return a copy of a scenario document with the values of `--set` arguments.

    Keys set this way are not swept.

    Args:
        document: scenario file.
        values_by_key: dotted path, or short name such as `workers` -> YAML text, or a number, boolean, None, list or
            dict.

    Raises:
        UserError: `values_by_key` is no such mapping, a path does not exist in the document, a value is not valid YAML,
            or has a type that YAML lacks.
    """
    if not isinstance(values_by_key, Mapping) or not all(isinstance(key, str) for key in values_by_key):
        raise UserError(
            f'settings: write a dict of dotted keys, such as {{"cluster.workers": 4}}, not {values_by_key!r}'
        )
    data, positions = deepcopy(document.data), dict(document.positions)
    for name, new_value in values_by_key.items():
        text = new_value if isinstance(new_value, str) else write_yaml(new_value, f"--set {name}", in_one_line=True)
        path, option = KEY_PATH_ALIASES.get(name, name), f"--set {name}={text}"
        if path.count(".") >= MAX_YAML_DEPTH:
            raise UserError(f"{option}: the path has more than {MAX_YAML_DEPTH} keys; write a shorter one")
        value = parse_yaml(text, option).data
        positions[_set_value_at_path(data, path, value, option)] = SourcePosition(option)
        _remove_key_from_sweep(data, path)
    return YamlDocument(data, positions)


def _set_value_at_path(document: Any, dotted_path: str, value: Any, cli_option: str) -> KeyPath:
    """Set the key or list item at a dotted path of `document`, and return the parsed path.

    The parsed path consists of keys and list indices.
    """
    *parents, last = dotted_path.split(".")
    keys: list[str | int] = []
    for name in parents:
        keys.append(key := _to_key_or_list_index(document, name, cli_option))
        document = document.setdefault(key, {}) if isinstance(document, dict) else document[key]
    keys.append(key := _to_key_or_list_index(document, last, cli_option))
    document[key] = value
    return tuple(keys)


def _to_key_or_list_index(section_or_list: Any, path_part: str, cli_option: str) -> str | int:
    """Convert one part of a dotted path to a section key or to a list index.

    The index is that of an existing list item.
    """
    if isinstance(section_or_list, dict):
        return path_part
    if not isinstance(section_or_list, list):
        raise UserError(
            f"{cli_option}: {path_part!r} can't be set, because the value above it is neither a section nor a list"
        )
    if path_part.isdecimal() and int(path_part) < len(section_or_list):
        return int(path_part)
    allowed = f"items are 0 to {len(section_or_list) - 1}" if section_or_list else "the list is empty"
    raise UserError(f"{cli_option}: {path_part!r} is not an item of the list; {allowed}")


def _remove_key_from_sweep(scenario_document: Any, dotted_path: str) -> None:
    """Remove the sweep over the key at a dotted path, if the scenario has one."""
    sweep = scenario_document.get("sweep")
    for name in [name for name in sweep or () if KEY_PATH_ALIASES.get(name, name) == dotted_path]:
        del sweep[name]
