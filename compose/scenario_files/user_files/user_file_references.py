"""References to the user's files in a scenario document: paths are made absolute, and digests are added.

Then the document, and every trial of a sweep, states exactly which data and which code it uses.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from compose.scenario_files.problems import ScenarioError, ScenarioProblem, SkippedScenarioError
from compose.scenario_files.user_files.checkpoint_references import resolve_initial_checkpoint
from compose.scenario_files.user_files.command_references import resolve_commands
from compose.scenario_files.user_files.failure_trace_references import resolve_failure_traces
from compose.scenario_files.user_files.file_references import resolve_code, resolve_data_file, resolve_data_files
from compose.scenario_files.user_files.speed_trace_references import resolve_speed_traces
from compose.scenario_files.user_files.swept_sections import convert_to_cases, value_at
from compose.scenario_files.yaml_document import YamlDocument
from services.learning.datasets.files import AnyFileDataset
from services.learning.datasets.files.base import FILE_KEYS
from services.learning.datasets.own import AnyOwnDataset
from services.learning.models import USER_MODEL_TYPES
from services.learning.models.own.base import CODE_KEYS
from services.learning.own_code.torch_package import MissingTorchError, find_torch
from services.schema.conflicts import KeyPath
from services.schema.errors import UserError

OWN_DATASET_KINDS = frozenset(kind.model_fields["kind"].default for kind in get_args(AnyOwnDataset))
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

    def have_kind(self, kind: Any) -> bool:
        """Return whether components of this kind have these keys.

        `kind` is what a user has written: a list or a mapping is no kind.
        """
        return isinstance(kind, str) and kind in self.kinds


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
    resolve_initial_checkpoint(data, folder)
    problems = list(resolve_commands(YamlDocument(data, document.positions), folder))
    problems += resolve_speed_traces(YamlDocument(data, document.positions), folder)
    problems += resolve_failure_traces(YamlDocument(data, document.positions), folder)
    for references in REFERENCES:
        problems += _resolve_references(references, YamlDocument(data, document.positions), folder)
    if problems:
        raise ScenarioError(problems)
    return YamlDocument(data, document.positions)


def _resolve_references(references: FileReferences, document: YamlDocument, folder: Path) -> Iterator[ScenarioProblem]:
    """Resolve the references of one component in place, and yield the problems."""
    base_kind = value_at(document.data, (*references.path, "kind"))
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
    component = value_at(document, references.path)
    yield from _references_of_component(references, component, references.path, base_kind)
    sweep = value_at(document, ("sweep",))
    for name, axis in (sweep if isinstance(sweep, dict) else {}).items():
        for case in convert_to_cases(references.dotted_paths, sweep, str(name), axis):
            for path, value in case.items():
                prefix, _, last = path.rpartition(".")
                if prefix == component_path and last in references.keys and references.have_kind(base_kind):
                    yield case, path, ("sweep", name)
                component = value_at(value, (references.section,)) if path == "workload" else value
                if path in ("workload", component_path):
                    yield from _references_of_component(references, component, ("sweep", name), None)


def _references_of_component(
    references: FileReferences, component: Any, position: KeyPath, default_kind: Any
) -> Iterator[tuple[dict[str, Any], str, KeyPath]]:
    """Yield each reference to a file in the section of a component."""
    if isinstance(component, dict) and references.have_kind(component.get("kind", default_kind)):
        for key in references.keys:
            if key in component:
                yield component, key, (*position, key) if position == references.path else position


REFERENCES = (
    FileReferences(
        section="dataset",
        kinds=frozenset(kind.model_fields["kind"].default for kind in get_args(AnyFileDataset)),
        keys=FILE_KEYS,
        resolve=resolve_data_file,
    ),
    FileReferences(
        section="dataset",
        kinds=OWN_DATASET_KINDS,
        keys=("module",),
        resolve=resolve_code,
    ),
    FileReferences(
        section="dataset",
        kinds=OWN_DATASET_KINDS,
        keys=("files",),
        resolve=resolve_data_files,
    ),
    FileReferences(
        section="model",
        kinds=frozenset(kind.model_fields["kind"].default for kind in USER_MODEL_TYPES),
        keys=CODE_KEYS,
        resolve=resolve_code,
    ),
)
