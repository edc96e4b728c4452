"""Which values are tried, and what does one combination of them look like?"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import reduce
from itertools import product
from typing import Any, Self, TypeAlias, TypeGuard

from pydantic import Field, GetJsonSchemaHandler, JsonValue, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from services.schema.component import Record
from services.schema.conflicts import Conflict, refuse

Document: TypeAlias = dict[str, Any]  # a scenario as YAML or JSON holds it
Setting: TypeAlias = dict[str, Any]  # name of an axis -> the value chosen there

WORKERS = "cluster.workers"
SHORT = {"workers": WORKERS}  # names that may stand for a path
# What shapes the list of trials cannot differ within it; and what carries messages is this host's, not the cluster's.
FIXED = {"name", "strategies", "sweep", "baseline", "repeats", "transport", "published"}


class Axis(Record):
    """What to try, one after the other; a plain list is an axis whose name is the path that it sets."""

    paths: list[str] = Field([], description="dotted paths set to the same value; the axis' own name when absent")
    values: list[JsonValue] = Field([], description="what they are set to")
    cases: dict[str, dict[str, JsonValue]] = Field(
        {}, description="instead: name -> dotted paths and what each is set to; null takes a key away"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, given: Any) -> Any:
        if not isinstance(given, list | dict | cls):
            raise ValueError("should be a list of values, or a section of paths and values, or of cases")  # noqa: TRY004 - pydantic collects ValueErrors
        return {"values": given} if isinstance(given, list) else given

    @model_validator(mode="after")
    def _values_differ(self) -> Self:
        if bool(self.values) == bool(self.cases):
            refuse([Conflict((), "write one of values and cases, with something to try")])
        twice = [value for k, value in enumerate(self.values) if value in self.values[:k]]
        refuse(Conflict((), f"{value} is listed twice; each value is tried once") for value in twice)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Editors learn of both ways to write it."""
        return {"anyOf": [handler(core), {"type": "array", "minItems": 1}]}

    @property
    def choices(self) -> list[JsonValue]:
        """Values, or names of cases."""
        return self.values or list(self.cases)

    def sets(self, name: str) -> tuple[str, ...]:
        """The dotted paths that this axis sets when it stands under `name`."""
        if self.cases:
            return tuple(dict.fromkeys(path for case in self.cases.values() for path in case))
        return tuple(self.paths) or (SHORT.get(name, name),)

    def assigns(self, name: str, choice: Any) -> Mapping[str, Any]:
        """Dotted path -> what it is set to under one of the choices."""
        return self.cases[choice] if self.cases else dict.fromkeys(self.sets(name), choice)

    def tries(self, name: str, path: str) -> list[Any]:
        """Everything that this axis sets one path to."""
        assigned = (self.assigns(name, choice) for choice in self.choices)
        return [values[path] for values in assigned if path in values]

    def concerns(self, name: str, label: str | None) -> bool:
        """Does it change anything for the strategy under `label`? The baseline (None) has one worker and no label."""
        if label is None and WORKERS in self.sets(name):
            return False
        owners = {_owner(path) for path in self.sets(name)}
        return bool(owners & {None, label})


Sweep: TypeAlias = Mapping[str, Axis]


def combinations(sweep: Sweep) -> Iterator[Setting]:
    """Every choice of one value or case per axis; the last axis changes fastest."""
    return (dict(zip(sweep, values, strict=True)) for values in product(*(axis.choices for axis in sweep.values())))


def apply(sweep: Sweep, setting: Setting, document: Document) -> Document:
    """A copy of `document` with the paths of every axis set to the value chosen there."""
    changed = deepcopy(document)
    for name, choice in setting.items():
        for path, value in sweep[name].assigns(name, choice).items():
            *parents, last = path.split(".")
            section = reduce(_enter, parents, changed)
            section[_key(section, last)] = deepcopy(value)
    return changed


def missing(path: str, document: Document) -> str | None:
    """Why `path` cannot be swept in a `document` with every default filled in; None when it can."""
    if path in FIXED:
        return f"{path} cannot be swept"
    here: Any = document
    for key in path.split("."):
        if key not in (known := _keys(here)):
            return f"{path} leads nowhere: {key} is none of {', '.join(known) or 'its keys, there are none'}"
        here = _enter(here, key)
    return None


def is_count(value: Any) -> TypeGuard[int]:
    """Is it a whole number from 1?"""
    return type(value) is int and value >= 1


def _owner(path: str) -> str | None:
    """The label of the strategy to which a path belongs; None when it belongs to all."""
    section, _, rest = path.partition(".")
    return rest.split(".")[0] if section == "strategies" else None


def _enter(section: Any, key: str) -> Any:
    return section[_key(section, key)]


def _key(section: Any, key: str) -> Any:
    return int(key) if isinstance(section, list) else key


def _keys(section: Any) -> list[str]:
    names = range(len(section)) if isinstance(section, list) else section if isinstance(section, dict) else ()
    return [str(name) for name in names]
