"""Sweep: axes that vary keys of a scenario, and all combinations of their values."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import reduce
from itertools import product
from typing import Any, Self, TypeAlias, TypeGuard

from pydantic import Field, GetJsonSchemaHandler, JsonValue, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict, raise_conflicts

ScenarioDocument: TypeAlias = dict[str, Any]  # a scenario in the types of YAML and JSON
SweepPoint: TypeAlias = dict[str, Any]  # name of an axis -> one of its values, or the name of one of its cases

WORKERS_KEY_PATH = "cluster.workers"
COMMAND_VARIABLES_KEY_PATH = "workload.variables"
KEY_PATH_ALIASES = {"workers": WORKERS_KEY_PATH}  # short name -> dotted path
RUN_KEY_PATHS = ("name", "strategies", "sweep", "baseline", "repeats", "attempts", "published", "claims")
HOST_KEY_PATHS = (
    "transport",
    "missing_gpu",
    "missing_packages",
)  # choices for this host, which are no properties of the cluster
UNSWEEPABLE_KEY_REASONS = dict.fromkeys(RUN_KEY_PATHS, "it applies to the whole run") | dict.fromkeys(
    HOST_KEY_PATHS, "it is a choice for this host"
)


class SweepAxis(FrozenRecord):
    """One sweep axis: scenario keys, and the values to try.

    If the axis is a plain list, its name is the key.
    """

    paths: list[str] = Field([], description="dotted paths that are set to one value; absent: the axis name")
    values: list[JsonValue] = Field([], description="values to which the paths are set, one after the other")
    cases: dict[str, dict[str, JsonValue]] = Field(
        {}, description="instead of values: name of a case -> dotted paths with their values; null removes a key"
    )

    @model_validator(mode="before")
    @classmethod
    def _convert_list_to_axis(cls, declared_axis: Any) -> Any:
        if not isinstance(declared_axis, list | dict | cls):
            raise ValueError("should be a list of values, or a section with values or cases")  # noqa: TRY004 - pydantic collects ValueErrors
        return {"values": declared_axis} if isinstance(declared_axis, list) else declared_axis

    @model_validator(mode="after")
    def _check_values_or_cases(self) -> Self:
        if bool(self.values) == bool(self.cases):
            raise_conflicts([KeyConflict((), "declare either values or cases, with at least one entry")])
        repeated = [value for k, value in enumerate(self.values) if value in self.values[:k]]
        raise_conflicts(KeyConflict((), f"{value} is listed twice; list each value once") for value in repeated)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema of a sweep axis.

        A sweep axis can be written in two forms: as a section, or as a plain list.
        """
        return {"anyOf": [handler(core), {"type": "array", "minItems": 1}]}

    @property
    def swept_values_or_names(self) -> list[JsonValue]:
        """Values of this sweep axis, or the names of its cases.

        Names are returned if the axis has named cases instead of values.
        """
        return self.values or list(self.cases)

    def swept_key_paths(self, own_axis_name: str) -> tuple[str, ...]:
        """Return the dotted paths of the scenario keys that this sweep axis sets."""
        if self.cases:
            return tuple(dict.fromkeys(path for case in self.cases.values() for path in case))
        return tuple(self.paths) or (KEY_PATH_ALIASES.get(own_axis_name, own_axis_name),)

    def values_by_key_path(self, own_axis_name: str, axis_value: Any) -> Mapping[str, Any]:
        """Return the scenario keys that one value of this sweep axis sets, with their values.

        The result maps the dotted path of a scenario key to its value. The axis can have named cases instead of values.
        """
        return self.cases[axis_value] if self.cases else dict.fromkeys(self.swept_key_paths(own_axis_name), axis_value)

    def list_swept_values(self, own_axis_name: str, key_path: str) -> list[Any]:
        """Return all values to which this sweep axis sets the scenario key at a dotted path."""
        assignments = (self.values_by_key_path(own_axis_name, option) for option in self.swept_values_or_names)
        return [values[key_path] for values in assignments if key_path in values]

    def affects_strategy(self, own_axis_name: str, strategy_label: str | None) -> bool:
        """Return whether this sweep axis changes trials of a strategy.

        The label None stands for the baseline, which always has one worker.
        """
        if strategy_label is None and WORKERS_KEY_PATH in self.swept_key_paths(own_axis_name):
            return False
        affected_labels = {_strategy_label_in_key_path(path) for path in self.swept_key_paths(own_axis_name)}
        return bool(affected_labels & {None, strategy_label})


Sweep: TypeAlias = Mapping[str, SweepAxis]


def sweep_points(sweep: Sweep) -> Iterator[SweepPoint]:
    """Yield every combination of one value per sweep axis; the last axis changes fastest."""
    axes = (axis.swept_values_or_names for axis in sweep.values())
    return (dict(zip(sweep, options, strict=True)) for options in product(*axes))


def apply_sweep_point(sweep: Sweep, sweep_point: SweepPoint, document: ScenarioDocument) -> ScenarioDocument:
    """Return a copy of a scenario document with one combination of swept values filled in."""
    changed = deepcopy(document)
    for axis_name, option in sweep_point.items():
        for path, value in sweep[axis_name].values_by_key_path(axis_name, option).items():
            *parents, last = path.split(".")
            section = reduce(_value_at_key, parents, changed)
            section[_parse_key_or_index(section, last)] = deepcopy(value)
    return changed


def unsweepable_key_reason(key_path: str, document: ScenarioDocument) -> str | None:
    """Return why a sweep cannot set the scenario key at a dotted path; None if it can.

    Args:
        key_path: the dotted path.
        document: the scenario, with every default filled in.
    """
    if reason := UNSWEEPABLE_KEY_REASONS.get(key_path):
        return (
            f"{key_path} cannot be swept, because {reason}; sweep keys of cluster, workload or single strategies, such "
            f"as workers, and run the scenario once per value of {key_path}, with --set {key_path}=VALUE"
        )
    section: Any = document
    for key in key_path.split("."):
        if key not in (known_keys := _section_keys(section)):
            if key_path == f"{COMMAND_VARIABLES_KEY_PATH}.{key}":
                return f"{key} is not declared; declare {key} in {COMMAND_VARIABLES_KEY_PATH}, with a value"
            allowed_keys = [*KEY_PATH_ALIASES, *known_keys] if section is document else known_keys
            allowed = f"allowed keys are {', '.join(allowed_keys)}" if allowed_keys else "no keys are allowed here"
            return f"unknown key {key}; {allowed}"
        section = _value_at_key(section, key)
    return None


def is_positive_int(value: Any) -> TypeGuard[int]:
    """Return whether the value is an integer of at least 1; booleans are not."""
    return type(value) is int and value >= 1


def _strategy_label_in_key_path(key_path: str) -> str | None:
    """Return the strategy label in the dotted path of a scenario key.

    Return None for a key outside of a strategy.
    """
    section, _, rest = key_path.partition(".")
    return rest.split(".")[0] if section == "strategies" else None


def _value_at_key(section: Any, key: str) -> Any:
    return section[_parse_key_or_index(section, key)]


def _parse_key_or_index(dict_or_list: Any, key_text: str) -> Any:
    return int(key_text) if isinstance(dict_or_list, list) else key_text


def _section_keys(section: Any) -> list[str]:
    keys = range(len(section)) if isinstance(section, list) else section if isinstance(section, dict) else ()
    return [str(key) for key in keys]
