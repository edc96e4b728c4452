"""JSON Schema of scenario files.

Editors validate files with it, and error messages take allowed keys, kinds and numbers from it.
"""

from functools import cache, reduce
from operator import getitem
from typing import Any

from services.scenario.scenario import Scenario
from services.schema.conflicts import KeyPath

JsonSchema = dict[str, Any]

NUMBER_TYPES = {"number": "a number", "integer": "a whole number"}
BOUND_TEXTS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}


@cache
def scenario_schema() -> JsonSchema:
    """Return the JSON Schema of a scenario file."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Ensayo scenario"}
    return dialect | {key: value for key, value in Scenario.model_json_schema().items() if key != "title"}


def find_allowed_keys(scenario_document: Any, key_path: KeyPath) -> list[str]:
    """Return the keys that a user may write in the section at `key_path` of a scenario document.

    Keys that Ensayo sets itself are left out: their schema is `readOnly`.
    """
    section_schema = _resolve_schema_references(
        _schema_at_key_path(scenario_schema(), scenario_document, key_path),
        reduce(getitem, key_path, scenario_document),
    )
    properties: dict[str, JsonSchema] = section_schema.get("properties", {})
    return [key for key, schema in properties.items() if not schema.get("readOnly")]


def find_kind_without_key(scenario_document: Any, key_path: KeyPath) -> str:
    """Return the kind of the component at `key_path` without its last key, if only other kinds have this key.

    The result is empty if no kind has the key, or if the component names no kind.
    """
    section_path, key = key_path[:-1], key_path[-1]
    section = reduce(getitem, section_path, scenario_document)
    kind = section.get("kind", "") if isinstance(section, dict) else ""
    other_kinds = [other for other in allowed_component_kinds(scenario_document, section_path) if other != kind]
    documents = ({**section, "kind": other} for other in other_kinds) if kind else ()
    schema = _schema_at_key_path(scenario_schema(), scenario_document, section_path)
    sections = (_resolve_schema_references(schema, document) for document in documents)
    properties = (section_schema.get("properties", {}).get(key, {"readOnly": True}) for section_schema in sections)
    return kind if any(not each.get("readOnly") for each in properties) else ""


def allowed_component_kinds(scenario_document: Any, key_path: KeyPath) -> list[str]:
    """Return the component kinds (such as `ring`) allowed at `key_path` of a scenario document.

    The result is empty if none are.
    """
    schema = _schema_at_key_path(scenario_schema(), scenario_document, key_path)
    union = schema["anyOf"][0] if "anyOf" in schema else schema  # anyOf: a component or null
    return list(union.get("discriminator", {}).get("mapping", {}))


def find_key_description(scenario_document: Any, key_path: KeyPath) -> str:
    """Return the description of the key at `key_path` of a scenario document.

    The result is empty if the key has none.
    """
    return str(_schema_at_key_path(scenario_schema(), scenario_document, key_path).get("description", ""))


def describe_allowed_number(scenario_document: Any, key_path: KeyPath) -> str:
    """Describe the numbers that are allowed at `key_path` of a scenario document.

    The result is empty if the key takes no number, or only listed values.
    """
    schema = _schema_at_key_path(scenario_schema(), scenario_document, key_path)
    (schema, *_) = schema.get("anyOf") or schema.get("oneOf") or [schema]
    if schema.get("type") not in NUMBER_TYPES or "enum" in schema:
        return ""
    bounds = " and ".join(text.format(_format_bound(schema[key])) for key, text in BOUND_TEXTS.items() if key in schema)
    bounds = bounds.replace("of at least 0 and at most", "from 0 to")
    factor = f"that is a multiple of {schema['multipleOf']}" if "multipleOf" in schema else ""
    is_share = schema.get("maximum", schema.get("exclusiveMaximum")) == 1
    example = ", for example 0.01" if is_share else ""
    return " ".join(filter(None, (NUMBER_TYPES[schema["type"]], bounds, factor))) + example


def _format_bound(bound: float) -> str:
    """Return a bound of a number as text, with commas between thousands if it is whole."""
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"


def _schema_at_key_path(json_schema: JsonSchema, scenario_section: Any, key_path: KeyPath) -> JsonSchema:
    """Return the JSON Schema of the value at `key_path` of a scenario document.

    It is a part of the JSON Schema of the document.
    """
    if not key_path:
        return json_schema
    key, *rest = key_path
    value_schema = _schema_of_key(_resolve_schema_references(json_schema, scenario_section), key)
    return _schema_at_key_path(value_schema, scenario_section[key], tuple(rest)) if rest else value_schema


def _schema_of_key(schema: JsonSchema, key: str | int) -> JsonSchema:
    """Return the JSON Schema of one key of a section, or of one item of a list.

    The result is empty if there is none.
    """
    of_known_key = schema.get("properties", {}).get(key)
    of_any_label = next(iter(schema.get("patternProperties", {}).values()), None)
    value_schema = of_known_key or of_any_label or schema.get("additionalProperties") or schema.get("items")
    return value_schema if isinstance(value_schema, dict) else {}


def _resolve_schema_references(json_schema: JsonSchema, scenario_section: Any) -> JsonSchema:
    """Return a JSON Schema with all references resolved.

    Each union is replaced by its member for the kind in the document, or else by its first member.
    """
    if "$ref" in json_schema:
        return _resolve_schema_references(
            scenario_schema()["$defs"][json_schema["$ref"].removeprefix("#/$defs/")], scenario_section
        )
    if "discriminator" in json_schema:
        mapping = json_schema["discriminator"]["mapping"]
        reference = mapping.get(scenario_section.get("kind"), next(iter(mapping.values())))
        return _resolve_schema_references({"$ref": reference}, scenario_section)
    return (
        _resolve_schema_references(json_schema["anyOf"][0], scenario_section) if "anyOf" in json_schema else json_schema
    )
