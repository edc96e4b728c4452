"""References to the user's files in a scenario document: paths are made absolute, and digests are added.

Then the document, and every trial of a sweep, states exactly which data and which code it uses.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from compose.commands.references import RESOLVED_COMMAND_KEYS, CommandReferenceError, resolve_command
from compose.data_files.digests import digest_file_or_folder
from compose.data_files.speed_trace import read_speed_trace
from compose.own_code.copies import copy_to_cache, find_copy
from compose.own_code.files import digest_code, read_code_files
from compose.scenario_files.problems import ScenarioError, ScenarioProblem, SkippedScenarioError
from compose.scenario_files.yaml_document import YamlDocument
from services.learning.datasets.files import AnyFileDataset, DataFileError
from services.learning.datasets.files.base import FILE_KEYS
from services.learning.datasets.own import AnyOwnDataset
from services.learning.models import USER_MODEL_TYPES
from services.learning.models.own.base import CODE_KEYS
from services.learning.own_code import OwnCodeError
from services.learning.own_code.torch_package import MissingTorchError, find_torch
from services.learning.own_code.user_code import split_reference
from services.scenario.trial_identity import swept_value_label
from services.schema.conflicts import KeyPath
from services.schema.errors import UserError
from services.schema.message_paths import path_for_messages

OWN_DATASET_KINDS = frozenset(kind.model_fields["kind"].default for kind in get_args(AnyOwnDataset))
SWEPT_TRACE_KEYS = tuple(f".variation.{key}" for key in ("file", "values", "sha256", "recorded"))
KINDS_WITH_TORCH = frozenset({"torch"})  # of models that record the installation of PyTorch on this host


@dataclass(frozen=True)
class FileReferences:
    """Keys of a component in the workload that name files of the user."""

    section: str  # key of the component in the workload
    kinds: frozenset[str]  # kinds of components that have these keys
    keys: tuple[str, ...]
    resolve: Callable[[str, Any, Path], Any]  # (key, reference, folder of the scenario) -> reference with digest

    @property
    def path(self) -> tuple[str, str]:
        """Path of the component in the document."""
        return ("workload", self.section)

    @property
    def dotted_paths(self) -> frozenset[str]:
        """Dotted paths that a sweep may set: the workload, the component, and its keys."""
        component = ".".join(self.path)
        return frozenset(("workload", component, *(f"{component}.{key}" for key in self.keys)))


def resolve_user_files(document: YamlDocument, folder: Path) -> YamlDocument:
    """Return a copy of a scenario document with absolute paths and digests of all files of the user.

    The code of the user is copied to the cache, from which nodes import it.

    Args:
        document: scenario, which need not be valid otherwise.
        folder: folder of the scenario file, to which paths are relative.

    Raises:
        ScenarioError: files are missing, can't be read, or do not have the declared digest.
        SkippedScenarioError: PyTorch is missing for a model of the user, without which no trial can be planned, and the
            scenario has `missing_packages: skip`.
        HostError: the copy of the code can't be written.
    """
    data = deepcopy(document.data)
    problems = list(_resolve_commands(YamlDocument(data, document.positions), folder))
    problems += _resolve_speed_traces(YamlDocument(data, document.positions), folder)
    for references in REFERENCES:
        problems += _resolve_references(references, YamlDocument(data, document.positions), folder)
    if problems:
        raise ScenarioError(problems)
    return YamlDocument(data, document.positions)


def _resolve_commands(document: YamlDocument, folder: Path) -> Iterator[ScenarioProblem]:
    """Resolve the files of every command in place, also those that a sweep sets, and yield the problems."""
    yield from _find_swept_command_keys(document)
    for workload, position in _find_workloads(document.data):
        if not isinstance(workload, dict) or workload.get("kind") != "command":
            continue
        try:
            resolve_command(workload, folder, document.data.get("engine"))
        except CommandReferenceError as error:
            key_path = (*position, error.key) if position == ("workload",) else position
            yield ScenarioProblem(document.find_position_of_key(key_path), f"workload.{error.key}", str(error))


def _resolve_speed_traces(document: YamlDocument, folder: Path) -> Iterator[ScenarioProblem]:
    """Read every trace of compute times, add its factors in place, also in a sweep, and yield the problems."""
    sweep = _value_at(document.data, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for path in sorted(path for path in _swept_paths(str(name), axis) if path.endswith(SWEPT_TRACE_KEYS)):
            message = "can't be swept alone; sweep the whole variation, with a case for each trace"
            yield ScenarioProblem(document.find_position_of_key(("sweep", name)), path, message)
    for variation, position in _find_speed_traces(document.data):
        try:
            variation.update(_resolve_speed_trace(variation, folder))
        except DataFileError as error:
            key = position[1] if position[0] == "sweep" else ".".join(map(str, position))
            yield ScenarioProblem(document.find_position_of_key(position), str(key), str(error))


def _find_speed_traces(document: Any) -> Iterator[tuple[dict[str, Any], KeyPath]]:
    """Yield each variation of compute times by a trace, with the position of its key `file` or of its sweep axis."""
    yield from _traces_in(_value_at(document, ("cluster",)), ("cluster",))
    sweep = _value_at(document, ("sweep",))
    for name, axis in [*(sweep if isinstance(sweep, dict) else {}).items()]:
        if any(_traces_in(axis, ())):
            for case in _convert_to_cases(frozenset(_swept_paths(str(name), axis)), sweep, str(name), axis):
                yield from ((variation, ("sweep", name)) for variation, _ in _traces_in(case, ()))


def _traces_in(section: Any, position: KeyPath) -> Iterator[tuple[dict[str, Any], KeyPath]]:
    if isinstance(section, dict) and section.get("kind") == "trace" and isinstance(section.get("file"), str):
        yield section, (*position, "file")
        return
    items = section.items() if isinstance(section, dict) else enumerate(section) if isinstance(section, list) else ()
    for key, value in items:
        yield from _traces_in(value, (*position, key))


def _resolve_speed_trace(variation: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the keys of a trace that its file determines: absolute path, digest and factors.

    If the scenario has digest and factors already, and the file is missing, the factors are kept.
    """
    declared = {key: variation[key] for key in ("file", "sha256") if variation.get(key) is not None}
    resolved: dict[str, Any] = _resolve_data_file("file", declared, folder)
    path = Path(resolved["file"])
    if variation.get("recorded") and not path.exists():
        return resolved
    return resolved | {"recorded": read_speed_trace(path, are_durations=variation.get("values") == "durations")}


def _find_swept_command_keys(document: YamlDocument) -> Iterator[ScenarioProblem]:
    """Yield a problem for each key that a sweep sets alone, although it is resolved with the whole command."""
    sweep = _value_at(document.data, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for path in sorted(_swept_paths(str(name), axis) & {f"workload.{key}" for key in RESOLVED_COMMAND_KEYS}):
            message = "can't be swept alone; sweep the whole workload, with a case for each command"
            yield ScenarioProblem(document.find_position_of_key(("sweep", name)), path, message)


def _swept_paths(axis_name: str, axis: Any) -> set[str]:
    """Return the dotted paths that a sweep axis sets; they need not be valid."""
    if not isinstance(axis, dict):
        return {axis_name}
    cases = axis.get("cases")
    if isinstance(cases, dict):
        return {str(path) for case in cases.values() if isinstance(case, dict) for path in case}
    paths = axis.get("paths")
    return set(map(str, paths)) if isinstance(paths, list) and paths else {axis_name}


def _find_workloads(document: Any) -> Iterator[tuple[Any, KeyPath]]:
    """Yield the workload of a document and each workload that a sweep sets, with its position.

    Values of a sweep that are workloads become cases, as for references to files.
    """
    yield _value_at(document, ("workload",)), ("workload",)
    sweep = _value_at(document, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for case in _convert_to_cases(frozenset(["workload"]), sweep, str(name), axis):
            yield case.get("workload"), ("sweep", name)


def _resolve_references(references: FileReferences, document: YamlDocument, folder: Path) -> Iterator[ScenarioProblem]:
    """Resolve the references of one component in place, and yield the problems."""
    base_kind = _value_at(document.data, (*references.path, "kind"))
    for section, key, position in _find_references(references, document.data, base_kind):
        last_key = key.rpartition(".")[2]
        try:
            section[key] = references.resolve(last_key, section[key], folder)
            if references.section == "model" and section.get("kind") in KINDS_WITH_TORCH:
                section["installation"] = find_torch().model_dump()
        except MissingTorchError as error:
            if document.data.get("missing_packages") == "skip":
                name = document.data.get("name")
                raise SkippedScenarioError(f"{name}: no trial can be planned on this host: {error}") from error
            dotted_key = ".".join(map(str, (*references.path, *error.key_path)))
            key_path = (*references.path, *error.key_path) if position[:-1] == references.path else position
            yield ScenarioProblem(document.find_position_of_key(key_path), dotted_key, str(error))
        except UserError as error:
            dotted_key = ".".join((*references.path, last_key))
            yield ScenarioProblem(document.find_position_of_key(position), dotted_key, str(error))


def _find_references(
    references: FileReferences, document: Any, base_kind: Any
) -> Iterator[tuple[dict[str, Any], str, KeyPath]]:
    """Yield each reference to a file: the section that contains it, its key there, and its position.

    Values of a sweep that contain references become cases, named as the values: the label of a trial is then what the
    user has written, without absolute path and digest.
    """
    component_path = ".".join(references.path)
    component = _value_at(document, references.path)
    yield from _references_of_component(references, component, references.path, base_kind)
    sweep = _value_at(document, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for case in _convert_to_cases(references.dotted_paths, sweep, str(name), axis):
            for path, value in case.items():
                prefix, _, last = path.rpartition(".")
                if prefix == component_path and last in references.keys and base_kind in references.kinds:
                    yield case, path, ("sweep", name)
                component = _value_at(value, (references.section,)) if path == "workload" else value
                if path in ("workload", component_path):
                    yield from _references_of_component(references, component, ("sweep", name), None)


def _references_of_component(
    references: FileReferences, component: Any, position: KeyPath, default_kind: Any
) -> Iterator[tuple[dict[str, Any], str, KeyPath]]:
    """Yield each reference to a file in the section of a component."""
    if isinstance(component, dict) and component.get("kind", default_kind) in references.kinds:
        for key in references.keys:
            if key in component:
                yield component, key, (*position, key) if position == references.path else position


def _convert_to_cases(file_paths: frozenset[str], sweep: dict[str, Any], name: str, axis: Any) -> list[dict[str, Any]]:
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


def _resolve_data_file(key: str, reference: Any, folder: Path) -> Any:
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


def _resolve_data_files(key: str, references: Any, folder: Path) -> Any:
    """Return a dict of references with absolute paths and digests; a value of a wrong type is returned unchanged."""
    if not isinstance(references, dict):
        return references
    return {name: _resolve_data_file(key, reference, folder) for name, reference in references.items()}


def _resolve_code(key: str, reference: Any, folder: Path) -> Any:
    """Return a reference to code with absolute path, digest, and the copy of the code in the cache.

    A value of a wrong type is returned unchanged. If the reference has a digest, and its code is in the cache, this
    code is used, even if the user's file has changed since: so the code of an earlier run can be run again.
    """
    declared = split_reference(reference) if isinstance(reference, str) else reference
    if not isinstance(declared, dict) or not isinstance(declared.get("file"), str):
        return reference
    path, declared_digest = Path(folder, declared["file"]).resolve(), declared.get("sha256")
    if isinstance(declared_digest, str) and (copy := find_copy(declared_digest)):
        return declared | {"file": str(path), "folder": str(copy)}
    if not path.is_file():
        raise OwnCodeError(
            (key,),
            f"{path_for_messages(path)}: file not found; write FILE:NAME, with a path relative to the scenario file",
        )
    contents = read_code_files(key, path.parent)
    digest = digest_code(contents)
    if declared_digest not in (None, digest):
        message = (
            f"{path_for_messages(path.parent)}: the Python files in this folder have the digest {digest}, not "
            f"{declared_digest}; restore the files, or remove sha256"
        )
        raise OwnCodeError((key,), message)
    return declared | {"file": str(path), "sha256": digest, "folder": str(copy_to_cache(contents))}


def _value_at(document: Any, key_path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys; None if there is none."""
    for key in key_path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


REFERENCES = (
    FileReferences(
        section="dataset",
        kinds=frozenset(kind.model_fields["kind"].default for kind in get_args(AnyFileDataset)),
        keys=FILE_KEYS,
        resolve=_resolve_data_file,
    ),
    FileReferences(
        section="dataset",
        kinds=OWN_DATASET_KINDS,
        keys=("module",),
        resolve=_resolve_code,
    ),
    FileReferences(
        section="dataset",
        kinds=OWN_DATASET_KINDS,
        keys=("files",),
        resolve=_resolve_data_files,
    ),
    FileReferences(
        section="model",
        kinds=frozenset(kind.model_fields["kind"].default for kind in USER_MODEL_TYPES),
        keys=CODE_KEYS,
        resolve=_resolve_code,
    ),
)
