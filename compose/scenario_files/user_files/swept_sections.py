"""Sections of a scenario document, and the dotted paths and cases of its sweep; none of them need be valid."""

from copy import deepcopy
from typing import Any

from services.scenario.trial_identity import swept_value_label


def swept_paths(axis_name: str, axis: Any) -> set[str]:
    """Return the dotted paths that a sweep axis sets; they need not be valid."""
    if not isinstance(axis, dict):
        return {axis_name}
    cases = axis.get("cases")
    if isinstance(cases, dict):
        return {str(path) for case in cases.values() if isinstance(case, dict) for path in case}
    paths = axis.get("paths")
    return set(map(str, paths)) if isinstance(paths, list) and paths else {axis_name}


def convert_to_cases(file_paths: frozenset[str], sweep: dict[str, Any], name: str, axis: Any) -> list[dict[str, Any]]:
    """Return the cases of a sweep axis, each a dict of dotted paths and values.

    If an axis with values sets one of the dotted paths `file_paths`, which lead to files of the user, it is replaced in
    `sweep` by an axis with cases.
    """
    cases = axis.get("cases") if isinstance(axis, dict) else None
    if isinstance(cases, dict):
        return [case for case in cases.values() if isinstance(case, dict)]
    if isinstance(axis, dict) and not axis.keys() <= {"values", "paths"}:
        return []  # the check of the sweep rejects other keys
    values = axis.get("values") if isinstance(axis, dict) else axis
    paths = (axis.get("paths") if isinstance(axis, dict) else None) or [name]
    if not isinstance(values, list) or not file_paths & set(map(str, paths)):
        return []
    labels = [str(swept_value_label(value)) for value in values]
    if len(set(labels)) < len(labels):
        return []  # the check of the sweep rejects repeated values
    new_cases = {label: {path: deepcopy(value) for path in paths} for label, value in zip(labels, values, strict=True)}
    sweep[name] = {"cases": new_cases}
    return [*new_cases.values()]


def value_at(document: Any, key_path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys; None if there is none."""
    for key in key_path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document
