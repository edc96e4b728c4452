"""References to data files in a scenario document: paths are made absolute, and digests are added.

Then the document, and every trial of a sweep, states exactly which data it uses.
"""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

from compose.data_files.digests import digest_file_or_folder
from compose.scenario_files.problems import ScenarioError, ScenarioProblem
from compose.scenario_files.yaml_document import YamlDocument
from services.learning.datasets.files import AnyFileDataset, DataFileError
from services.learning.datasets.files.base import FILE_KEYS
from services.scenario.scenario import swept_value_label
from services.schema.conflicts import KeyPath
from services.schema.message_paths import path_for_messages

FILE_KINDS = frozenset(kind.model_fields["kind"].default for kind in get_args(AnyFileDataset))
DATASET_PATH = ("workload", "dataset")


def resolve_data_files(document: YamlDocument, folder: Path) -> YamlDocument:
    """Return a copy of a scenario document with absolute paths and digests of all data files.

    Args:
        document: scenario, which need not be valid otherwise.
        folder: folder of the scenario file, to which paths are relative.

    Raises:
        ScenarioError: files are missing, can't be read, or do not have the declared digest.
    """
    data, problems = deepcopy(document.data), []
    base_kind = _value_at(data, (*DATASET_PATH, "kind"))
    for section, key, position in _find_references(data, base_kind):
        try:
            section[key] = _resolve_reference(key.rpartition(".")[2], section[key], folder)
        except DataFileError as error:
            dotted_key = ".".join(map(str, (*DATASET_PATH, error.key)))
            problems.append(ScenarioProblem(document.find_position_of_key(position), dotted_key, str(error)))
    if problems:
        raise ScenarioError(problems)
    return YamlDocument(data, document.positions)


def _find_references(document: Any, base_kind: Any) -> Iterator[tuple[dict[str, Any], str, KeyPath]]:
    """Yield each reference to a data file: the section that contains it, its key there, and its position.

    Values of a sweep that contain references become cases, named as the values: the label of a trial is then what the
    user has written, without absolute path and digest.
    """
    yield from _references_of_dataset(_value_at(document, DATASET_PATH), DATASET_PATH, base_kind)
    sweep = _value_at(document, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for case in _convert_to_cases(sweep, str(name), axis):
            for path, value in case.items():
                prefix, _, last = path.rpartition(".")
                if prefix == ".".join(DATASET_PATH) and last in FILE_KEYS and base_kind in FILE_KINDS:
                    yield case, path, ("sweep", name)
                dataset = _value_at(value, ("dataset",)) if path == "workload" else value
                if path in ("workload", ".".join(DATASET_PATH)):
                    yield from _references_of_dataset(dataset, ("sweep", name), None)


def _references_of_dataset(
    dataset: Any, position: KeyPath, default_kind: Any
) -> Iterator[tuple[dict[str, Any], str, KeyPath]]:
    """Yield each reference to a file in the section of a dataset."""
    if isinstance(dataset, dict) and dataset.get("kind", default_kind) in FILE_KINDS:
        for key in FILE_KEYS:
            if key in dataset:
                yield dataset, key, (*position, key) if position == DATASET_PATH else position


def _convert_to_cases(sweep: dict[str, Any], name: str, axis: Any) -> list[dict[str, Any]]:
    """Return the cases of a sweep axis, each a dict of dotted paths and values.

    If an axis with values sets a dataset or one of its files, it is replaced in `sweep` by an axis with cases.
    """
    cases = axis.get("cases") if isinstance(axis, dict) else None
    if isinstance(cases, dict):
        return [case for case in cases.values() if isinstance(case, dict)]
    if isinstance(axis, dict) and not axis.keys() <= {"values", "paths"}:
        return []  # the check of the sweep rejects other keys
    values = axis.get("values") if isinstance(axis, dict) else axis
    paths = (axis.get("paths") if isinstance(axis, dict) else None) or [name]
    keys = [".".join((*DATASET_PATH, key)) for key in FILE_KEYS]
    if not isinstance(values, list) or not {"workload", ".".join(DATASET_PATH), *keys} & set(map(str, paths)):
        return []
    labels = [str(swept_value_label(value)) for value in values]
    if len(set(labels)) < len(labels):
        return []  # the check of the sweep rejects repeated values
    new_cases = {label: {path: deepcopy(value) for path in paths} for label, value in zip(labels, values, strict=True)}
    sweep[name] = {"cases": new_cases}
    return [*new_cases.values()]


def _resolve_reference(key: str, reference: Any, folder: Path) -> Any:
    """Return a reference with absolute path and digest; a value of a wrong type is returned unchanged.

    If the reference has a digest and the file is missing, the data may have been prepared before.
    """
    declared = {"file": reference} if isinstance(reference, str) and reference else reference
    if not isinstance(declared, dict) or not isinstance(declared.get("file"), str):
        return reference
    if "\0" in declared["file"]:
        raise DataFileError(key, f"{declared['file']!r} is not a path: it contains the character NUL")
    path, declared_digest = Path(folder, declared["file"]).resolve(), declared.get("sha256")
    if declared_digest is not None and not path.exists():
        return declared | {"file": str(path)}
    digest = digest_file_or_folder(key, path)
    if declared_digest not in (None, digest):
        message = (
            f"{path_for_messages(path)}: the content has the digest {digest}, not {declared_digest}; restore the file, "
            "or remove sha256"
        )
        raise DataFileError(key, message)
    return declared | {"file": str(path), "sha256": digest}


def _value_at(document: Any, key_path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys; None if there is none."""
    for key in key_path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document
