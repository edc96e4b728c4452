"""What may stand in a scenario, as JSON Schema: editors check with it, error messages look up in it what is allowed."""

from functools import cache, reduce
from operator import getitem
from typing import Any

from services.scenario.scenario import Scenario
from services.schema.conflicts import KeyPath

Schema = dict[str, Any]

NUMBERS = {"number": "a number", "integer": "a whole number"}
BOUNDS = {
    "minimum": "at least {:g}",
    "exclusiveMinimum": "above {:g}",
    "maximum": "at most {:g}",
    "exclusiveMaximum": "below {:g}",
}


@cache
def schema() -> Schema:
    """JSON Schema of a scenario file."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Ensayo scenario"}
    return dialect | {key: value for key, value in Scenario.model_json_schema().items() if key != "title"}


def keys(data: Any, path: KeyPath) -> list[str]:
    """The keys that may stand in the section at `path` of the document `data`."""
    return list(_resolved(_at(schema(), data, path), reduce(getitem, path, data)).get("properties", {}))


def kinds(data: Any, path: KeyPath) -> list[str]:
    """The kinds of component that may stand at `path` of the document `data`; none where no component stands."""
    part = _at(schema(), data, path)
    union = part["anyOf"][0] if "anyOf" in part else part  # one that may be absent
    return list(union.get("discriminator", {}).get("mapping", {}))


def description(data: Any, path: KeyPath) -> str:
    """What the schema says about the meaning of `path`; empty where it says nothing."""
    return str(_at(schema(), data, path).get("description", ""))


def number(data: Any, path: KeyPath) -> str:
    """Which numbers may stand at `path` of the document `data`, in words; empty where no number stands."""
    part = _at(schema(), data, path)
    part = part["anyOf"][0] if "anyOf" in part else part
    if part.get("type") not in NUMBERS:
        return ""
    bounds = " and ".join(word.format(part[key]) for key, word in BOUNDS.items() if key in part)
    share = "maximum" in part or "exclusiveMaximum" in part
    bounds = bounds.replace("at least 0 and at most", "from 0 to")
    return " ".join(filter(None, (NUMBERS[part["type"]], bounds))) + (", for example 0.01" if share else "")


def _at(part: Schema, data: Any, path: KeyPath) -> Schema:
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
