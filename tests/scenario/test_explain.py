"""A finding leads to its key, whatever the key is called."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from pydantic import ValidationError

from compose.scenario_files.json_schema import JsonSchema, scenario_schema
from compose.scenario_files.validation_messages import explain_validation_error
from services.scenario.scenario import Scenario

Step: TypeAlias = tuple[str | int, str | None]  # a key, and the kind of the section in which it stands


def unions(
    part: JsonSchema, trail: tuple[Step, ...] = (), kind: str | None = None
) -> Iterator[tuple[tuple[Step, ...], str]]:
    """Every place of a component in a scenario with every kind that may stand there."""
    part = part["anyOf"][0] if "anyOf" in part else part
    part = scenario_schema()["$defs"][part["$ref"].removeprefix("#/$defs/")] if "$ref" in part else part
    for name, member in part.get("discriminator", {}).get("mapping", {}).items():
        yield trail, name
        yield from unions({"$ref": member}, trail, name)
    below = dict(part.get("properties", {}))
    labelled = next(iter(part.get("patternProperties", {}).values()), part.get("additionalProperties"))
    below |= {key: inner for key, inner in (("it", labelled), (0, part.get("items"))) if inner}
    for key, inner in below.items():
        yield from unions(inner, (*trail, (key, kind)))


def holding(trail: tuple[Step, ...], value: Any) -> Any:
    """A document with a value at the end of a trail and nothing else."""
    for key, kind in reversed(trail):
        value = [value] if key == 0 else {key: value} | ({"kind": kind} if kind else {})
    return value


@pytest.mark.parametrize(
    ("trail", "kind"),
    [
        pytest.param(trail, kind, id=".".join([*(str(key) for key, _ in trail), kind]))
        for trail, kind in unions(scenario_schema())
    ],
)
def test_a_key_that_repeats_the_kind_is_found_where_it_stands(trail: tuple[Step, ...], kind: str) -> None:
    """Pydantic's paths name the kind of each component; a key of that name once crashed the explanation."""
    document = holding(trail, {"kind": kind, kind: [["?"]]})

    with pytest.raises(ValidationError) as raised:
        Scenario.decode(document)

    assert (*(key for key, _ in trail), kind) in [
        found.key_path for found in explain_validation_error(raised.value, document)
    ]
