"""What may stand in a scenario, as JSON Schema: editors check with it, error messages look up in it what is allowed."""

from functools import cache, reduce
from operator import getitem
from typing import Any

from services.conflict import Path
from services.scenario import Scenario

Schema = dict[str, Any]


@cache
def schema() -> Schema:
    """JSON Schema of a scenario file."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Ensayo scenario"}
    return dialect | {key: value for key, value in Scenario.model_json_schema().items() if key != "title"}


def keys(data: Any, path: Path) -> list[str]:
    """The keys that may stand in the section at `path` of the document `data`."""
    return list(_resolved(_at(schema(), data, path), reduce(getitem, path, data)).get("properties", {}))


def kinds(data: Any, path: Path) -> list[str]:
    """The kinds of component that may stand at `path` of the document `data`; none where no component stands."""
    return list(_at(schema(), data, path).get("discriminator", {}).get("mapping", {}))


def _at(part: Schema, data: Any, path: Path) -> Schema:
    """What the schema `part` of `data` says about `path` below it."""
    if not path:
        return part
    key, *rest = path
    below = _below(_resolved(part, data), key)
    return _at(below, data[key], tuple(rest)) if rest else below


def _below(part: Schema, key: str | int) -> Schema:
    """What a section's schema says about one of its keys or items."""
    named = part.get("properties", {}).get(key)
    labelled = next(iter(part.get("patternProperties", {}).values()), None)
    inner = named or labelled or part.get("additionalProperties") or part.get("items")
    return inner if isinstance(inner, dict) else {}


def _resolved(part: Schema, data: Any) -> Schema:
    """The schema without references and unions: of a union the member of the kind that `data` names, or the first."""
    if "$ref" in part:
        return _resolved(schema()["$defs"][part["$ref"].removeprefix("#/$defs/")], data)
    if "discriminator" in part:
        return _resolved({"$ref": part["discriminator"]["mapping"][data["kind"]]}, data)
    return _resolved(part["anyOf"][0], data) if "anyOf" in part else part
