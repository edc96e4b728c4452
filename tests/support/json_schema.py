"""Parts of JSON schemas, for tests that validate a part of a document."""

from typing import Any


def find_subschema(schema: Any, key: str) -> Any:
    """Return the value of the first key with this name at any depth."""
    if not isinstance(schema, dict):
        return None
    return schema.get(key) or next((found for each in schema.values() if (found := find_subschema(each, key))), None)
