"""Preparation of datasets that code of the user creates: runs the code, checks the samples, and writes arrays."""

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from compose.data_files.labels import check_labels
from compose.data_files.samples import check_class_count, check_prepared_size, prepare_samples
from compose.own_code.dataset_parts import DatasetPart, check_parts, make_samples
from compose.own_code.python_dataset import call_data_function
from compose.own_code.torch_dataset import read_torch_dataset
from services.learning.datasets.own import OwnDataset
from services.learning.datasets.prepared import PreparedArrays
from services.learning.own_code import OwnCodeError, UserCode, describe_definition, make_error, use_code_folder
from services.schema.arrays import HostArray

WHOLE_NUMBER_KINDS = "bui"
# Kind of a dataset -> function that runs the code, given its arguments and a folder for large arrays.
PART_READERS: Mapping[str, Callable[[Any, Mapping[str, Any], Path], list[DatasetPart]]] = {
    "python": call_data_function,
    "torch": read_torch_dataset,
}


def prepare_own_dataset(dataset: OwnDataset, folder: Path) -> PreparedArrays:
    """Run the code of a dataset, check the samples, and write the arrays of the dataset to `folder`.

    Raises:
        OwnCodeError: the code can't be imported, raises an error, returns samples that do not fit the keys of the
            dataset, or returns other samples when it is run again.
    """
    with use_code_folder(dataset.module), redirect_stdout(sys.stderr):  # results are printed to the standard output
        arrays = _write_arrays(dataset, folder)
        if dataset.check_determinism:
            _check_same_arrays_again(dataset, folder)
    return arrays


def _check_same_arrays_again(dataset: OwnDataset, folder: Path) -> None:
    """Write the arrays again; raise OwnCodeError if they are others."""
    before = _digest_arrays(folder)
    _write_arrays(dataset, folder)
    after = _digest_arrays(folder)
    if changed := [name for name in before if before[name] != after[name]]:
        raise make_error(
            dataset.module,
            f"a second call returns other samples ({', '.join(changed)}); draw random numbers from a generator that "
            "the call creates with a seed, such as np.random.default_rng(0), or write check_determinism: false to keep "
            "the samples of one call",
        )


def _digest_arrays(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(folder.glob("*.npy")):
        with path.open("rb") as file:
            digests[path.stem] = file_digest(file, "sha256").hexdigest()
    return digests


def _write_arrays(dataset: OwnDataset, folder: Path) -> PreparedArrays:
    code = dataset.module
    with TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as temporary:
        parts = _read_parts(dataset, Path(temporary))
        check_parts(code, parts)
        for part in parts:
            check_prepared_size("module", f"{describe_definition(code)}: {part.x_name}", part.x.nbytes)
        objective = dataset.objective or _derive_objective(parts[0].y)
        class_count = None if objective == "regression" else _count_classes(dataset, objective, parts)
        train, *test = (make_samples(code, part, _convert_targets(code, objective, part)) for part in parts)
        loss = dataset.objective_losses[objective]
        return prepare_samples(dataset, folder, train, test[0] if test else None, class_count=class_count, loss=loss)


def _read_parts(dataset: OwnDataset, folder: Path) -> list[DatasetPart]:
    """Run the user's code, and return the training part and the test part, or one part that is split later."""
    return PART_READERS[dataset.kind](dataset, _collect_arguments(dataset), folder)


def _collect_arguments(dataset: OwnDataset) -> Mapping[str, Any]:
    """Return the arguments of the scenario, and the absolute paths of the declared files."""
    if both := sorted(dataset.arguments.keys() & dataset.files.keys()):
        raise OwnCodeError(("files",), f"{both[0]} is in arguments and in files; remove one of both")
    return dataset.arguments | {name: file.file for name, file in dataset.files.items()}


def _derive_objective(targets: HostArray) -> str:
    is_class = targets.dtype.kind in WHOLE_NUMBER_KINDS and targets.ndim == 1
    return "classification" if is_class else "regression"


def _count_classes(dataset: OwnDataset, objective: str, parts: list[DatasetPart]) -> int:
    """Return the number of classes or tokens, after a check of all of them."""
    code = dataset.module
    for part in parts:
        check = _check_tokens if objective == "next_token" else _check_classes
        check(code, part)
    numbers = {part.y_name: part.y for part in parts}
    if objective == "next_token":
        numbers |= {part.x_name: part.x for part in parts}
    count = dataset.classes or 1 + max(int(values.max()) for values in numbers.values())
    place = f"{describe_definition(code)}: {code.name}"
    check_class_count("module", place, count)
    for name, values in numbers.items():
        rows = values if values.ndim == 1 else _extreme_of_rows(values, count)
        check_labels("module", f"{place}: {name}", rows.astype(np.int64), count)
    return count


def _extreme_of_rows(values: HostArray, count: int) -> HostArray:
    """Return for each sequence its largest token, or its smallest if that is negative."""
    smallest, largest = values.min(axis=1), values.max(axis=1)
    extreme: HostArray = np.where((smallest < 0) | (largest < count), smallest, largest)
    return extreme


def _check_classes(code: UserCode, part: DatasetPart) -> None:
    if part.y.dtype.kind not in WHOLE_NUMBER_KINDS or part.y.ndim != 1:
        raise make_error(
            code,
            f"{part.y_name} has the shape {part.y.shape} of {part.y.dtype}; classes are whole numbers, one per sample; "
            "convert them, or declare objective: regression",
        )
    _check_has_features(code, part)


def _check_tokens(code: UserCode, part: DatasetPart) -> None:
    are_whole = {part.x.dtype.kind, part.y.dtype.kind} <= set("ui")
    if not are_whole or part.x.ndim != 2 or part.x.shape != part.y.shape:  # noqa: PLR2004 - samples and positions
        raise make_error(
            code,
            f"{part.x_name} has the shape {part.x.shape} of {part.x.dtype}, and {part.y_name} {part.y.shape} of "
            f"{part.y.dtype}; with objective: next_token, both are whole numbers of one shape (samples, positions)",
        )


def _check_has_features(code: UserCode, part: DatasetPart) -> None:
    if part.x.ndim == 1:
        message = f"{part.x_name} has one axis; samples need two or more: (samples, ...)"
        raise make_error(code, message)


def _convert_targets(code: UserCode, objective: str, part: DatasetPart) -> HostArray:
    """Return the targets as classes or tokens (int64), or as values (n, outputs)."""
    if objective != "regression":
        return part.y.astype(np.int64)
    _check_has_features(code, part)
    if part.y.ndim > 2:  # noqa: PLR2004 - samples and outputs
        message = f"{part.y_name} has the shape {part.y.shape}; values have (samples,) or (samples, outputs)"
        raise make_error(code, message)
    return part.y.reshape(len(part.y), -1).astype(float)
