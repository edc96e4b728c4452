"""The content of a scenario file, built from keyword arguments and Python objects."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import isclass
from typing import Any

from ensayo.declaration.code_references import is_user_object, reference_to
from services.scenario.scenario import Scenario
from services.scenario.workload import Workload
from services.schema.errors import UserError

SCENARIO_KEYS = frozenset(Scenario.model_fields) - {"workload"}
WORKLOAD_KEYS = frozenset(Workload.model_fields)
WORKERS = "workers"  # short for cluster.workers, or for a sweep over it
DEFAULTS: Mapping[str, Any] = {"optimiser": {"kind": "adam", "rate": 0.001}, "batch": 64}
CODE_KEYS = ("module", "loss")
TORCH_MODULE = ("torch.nn.modules.module", "Module")


def declare(**keys: Any) -> dict[str, Any]:
    """Return a scenario as a dict, which `rehearse`, `plan` and `load` accept.

    Args:
        keys: keys of a scenario file. Keys of its section `workload` are written without it: `model`, `dataset`,
            `batch`, `epochs`. `workers` is a number, or a list of numbers, which are swept. A section with a `kind` may
            be the kind alone: `dataset="digits"`. `strategies` may be a list of kinds and sections. `model` and
            `dataset` may be a class or function, of a file or of a notebook cell, or a section whose `module` is one.
            Without `name`, it is that of the model; without `optimiser`, it is Adam with the rate 0.001; without
            `batch` and `batch_per_worker`, the batch is 64.

    Raises:
        UserError: a key is unknown, or a class or function can't be written to a file. Values are checked when the
            scenario is loaded.
    """
    allowed = SCENARIO_KEYS | WORKLOAD_KEYS | {WORKERS}
    for key in keys.keys() - allowed:
        similar = get_close_matches(key, allowed, n=1)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        raise UserError(f"there is no key {key}; allowed are {', '.join(sorted(allowed))}{hint}")
    defaults = {key: value for key, value in DEFAULTS.items() if key != "batch" or "batch_per_worker" not in keys}
    given = {key: _convert_section(key, value) for key, value in (defaults | keys).items()}
    document = {key: value for key, value in given.items() if key in SCENARIO_KEYS}
    document.setdefault("name", _derive_name(keys.get("model")))
    document["workload"] = {key: value for key, value in given.items() if key in WORKLOAD_KEYS}
    return _with_workers(document, keys[WORKERS]) if WORKERS in keys else document


def _with_workers(document: dict[str, Any], workers: Any) -> dict[str, Any]:
    """Return a document with a number of workers, or with a sweep over several numbers."""
    if isinstance(workers, int):
        return document | {"cluster": {**document.get("cluster", {}), WORKERS: workers}}
    return document | {"sweep": {**document.get("sweep", {}), WORKERS: [*workers]}}


def _convert_section(key: str, value: Any) -> Any:
    """Return the value of a key as a scenario file has it."""
    if key == "strategies":
        return _label_strategies(value)
    if key in CODE_SECTIONS:
        return _convert_code_section(key, value)
    return {"kind": value} if isinstance(value, str) and key in KIND_SECTIONS else value


def _label_strategies(strategies: Any) -> Any:
    """Return strategies by label; strategies of a list have their kind as label."""
    if isinstance(strategies, Mapping):
        return {label: {"kind": value} if isinstance(value, str) else value for label, value in strategies.items()}
    if isinstance(strategies, str) or not isinstance(strategies, list | tuple):
        return _label_strategies([strategies]) if isinstance(strategies, str) else strategies
    labelled: dict[str, Any] = {}
    for strategy in strategies:
        section = {"kind": strategy} if isinstance(strategy, str) else strategy
        label = section.get("kind") if isinstance(section, Mapping) else None
        if not isinstance(label, str) or label in labelled:
            problem = "is in the list twice" if label in labelled else "has no kind"
            raise UserError(
                f'strategies: {strategy!r} {problem}; write a dict of labels and strategies, such as {{"ring": '
                '{"kind": "all_reduce"}}'
            )
        labelled[label] = section
    return labelled


def _convert_code_section(key: str, value: Any) -> Any:
    """Return a model or dataset as a scenario file has it, with references in place of classes and functions."""
    if isinstance(value, str):
        return {"kind": value}
    section = {"module": value} if is_user_object(value) else value
    if not isinstance(section, Mapping):
        kind, name = KIND_EXAMPLES[key], type(value).__name__
        raise UserError(
            f'{key}: an object of {name} can\'t be used; write a kind, such as "{kind}", a class or function, or a '
            f'section, such as {key}={{"module": {name}, "arguments": {{}}}}'
        )
    if is_user_object(section.get("module")) and "kind" not in section:
        section = {"kind": CODE_SECTIONS[key](section["module"])} | dict(section)
    return {
        name: reference_to(part) if name in CODE_KEYS and is_user_object(part) else part
        for name, part in section.items()
    }


def _kind_of_model(definition: Any) -> str:
    """Return torch for a function or a subclass of torch.nn.Module, and python for other classes."""
    bases = {(base.__module__, base.__name__) for base in definition.__mro__} if isclass(definition) else {TORCH_MODULE}
    return "torch" if TORCH_MODULE in bases else "python"


def _kind_of_dataset(definition: Any) -> str:
    """Return torch for a class, whose objects are datasets, and python for a function, which returns arrays."""
    return "torch" if isclass(definition) else "python"


def _derive_name(model: Any) -> str:
    """Return the name of a scenario: that of its model."""
    part = model.get("module", model.get("kind")) if isinstance(model, Mapping) else model
    name = part if isinstance(part, str) else getattr(part, "__name__", "")
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_") or "rehearsal"


CODE_SECTIONS: Mapping[str, Callable[[Any], str]] = {"model": _kind_of_model, "dataset": _kind_of_dataset}
KIND_EXAMPLES = {"model": "lenet5", "dataset": "digits"}
KIND_SECTIONS = frozenset({"optimiser", "schedule", "order", "partition"})
