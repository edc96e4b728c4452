"""Base classes of the records that a user writes in a scenario."""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, JsonValue

SET_BY_ENSAYO: dict[str, JsonValue] = {"readOnly": True}  # schema of keys that users do not write


class FrozenRecord(BaseModel):
    """Base class of immutable records, which reject unknown keys.

    Unknown keys, NaN and infinity are validation errors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ScenarioComponent(FrozenRecord):
    """Base class of strategies, models and other parts that a scenario selects by `kind`.

    Fields are hyperparameters. A component keeps no state: methods take state as an argument and return the new state.
    So all nodes can share one component, and a printed component shows exactly what the user wrote.
    """

    kind: str  # each subclass narrows the type to a literal


def find_keys_set_by_ensayo(record: BaseModel) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of the keys that Ensayo sets and that have another value than the default, in nested records."""
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if field.json_schema_extra == SET_BY_ENSAYO and value != field.get_default(call_default_factory=False):
            yield (name,)
            continue
        items = enumerate(value) if isinstance(value, tuple) else ()
        nested: list[tuple[tuple[str | int, ...], BaseModel]] = [
            ((name, number), item) for number, item in items if isinstance(item, BaseModel)
        ]
        if isinstance(value, BaseModel):
            nested.append(((name,), value))
        for path, item in nested:
            yield from ((*path, *rest) for rest in find_keys_set_by_ensayo(item))


def find_changed_key(record: BaseModel, key: str) -> tuple[str, ...]:
    """Return the path of the first key with this name and another value than the default, in nested records.

    The path is empty if there is none.
    """
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if name == key and value != field.get_default(call_default_factory=False):
            return (name,)
        if isinstance(value, BaseModel) and (path := find_changed_key(value, key)):
            return (name, *path)
    return ()
