"""A validation error names the path of its key, even if the key is called like a kind."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from pydantic import ValidationError

from compose.scenario_files.json_schema import JsonSchema, scenario_schema
from compose.scenario_files.validation_messages import explain_validation_error
from services.scenario.scenario import Scenario

KeyAndKind: TypeAlias = tuple[str | int, str | None]  # a key, and the kind of the section that contains it


def component_paths(
    part: JsonSchema, path: tuple[KeyAndKind, ...] = (), kind: str | None = None
) -> Iterator[tuple[tuple[KeyAndKind, ...], str]]:
    """Yield the path of every component in a scenario with every kind that is allowed at this path."""
    part = part["anyOf"][0] if "anyOf" in part else part
    part = scenario_schema()["$defs"][part["$ref"].removeprefix("#/$defs/")] if "$ref" in part else part
    for name, member in part.get("discriminator", {}).get("mapping", {}).items():
        yield path, name
        yield from component_paths({"$ref": member}, path, name)
    members = dict(part.get("properties", {}))
    labelled_member = next(iter(part.get("patternProperties", {}).values()), part.get("additionalProperties"))
    members |= {key: member for key, member in (("it", labelled_member), (0, part.get("items"))) if member}
    for key, member in members.items():
        yield from component_paths(member, (*path, (key, kind)))


def document_with(path: tuple[KeyAndKind, ...], value: Any) -> Any:
    """Return a document that contains only this value, at the end of this path."""
    for key, kind in reversed(path):
        value = [value] if key == 0 else {key: value} | ({"kind": kind} if kind else {})
    return value


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param(path, kind, id=".".join([*(str(key) for key, _ in path), kind]))
        for path, kind in component_paths(scenario_schema())
    ],
)
def test_an_error_names_the_path_of_a_key_called_like_its_kind(path: tuple[KeyAndKind, ...], kind: str) -> None:
    """Pydantic's paths name the kind of each component; a key of the same name once caused a crash."""
    document = document_with(path, {"kind": kind, kind: [["?"]]})

    with pytest.raises(ValidationError) as raised:
        Scenario.decode(document)

    wrong_key = (*(key for key, _ in path), kind)
    key_paths = [conflict.key_path for conflict in explain_validation_error(raised.value, document)]
    assert wrong_key in [key_path[: len(wrong_key)] for key_path in key_paths]  # of a list, its first item is wrong
