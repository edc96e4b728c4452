"""Reading of a map-style dataset of PyTorch, which a class of the user creates, sample by sample.

PyTorch itself is not imported here: the user's file does.
"""

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compose.data_files.array_writer import ArrayWriter
from compose.data_files.samples import check_prepared_size
from compose.own_code.dataset_parts import DatasetPart, convert_to_array
from services.learning.datasets.own import TorchDataset
from services.learning.own_code import (
    UserCode,
    call_user_object,
    explain_own_errors,
    load_user_object,
    make_error,
)
from services.schema.arrays import HostArray

TRAIN_PARAMETER = "train"  # of the datasets of torchvision


def read_torch_dataset(dataset: TorchDataset, arguments: Mapping[str, Any], folder: Path) -> list[DatasetPart]:
    """Return the training part and the test part, or one part that has not been split.

    Args:
        dataset: the declared dataset.
        arguments: arguments of the class.
        folder: for the samples, which may be larger than the memory; it is needed as long as the parts.

    Raises:
        OwnCodeError: the class raises an error, or is no such dataset.
    """
    return [
        _read_part(dataset.module, name, call_user_object(dataset.module, **arguments, **further), folder)
        for name, further in _list_constructions(dataset)
    ]


def _list_constructions(dataset: TorchDataset) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each part, with the arguments that only this part has."""
    if dataset.train_arguments is not None or dataset.test_arguments is not None:
        yield "train", dataset.train_arguments or {}
        yield "test", dataset.test_arguments or {}
    elif _has_train_parameter(dataset.module) and TRAIN_PARAMETER not in dataset.arguments:
        yield "train", {TRAIN_PARAMETER: True}
        yield "test", {TRAIN_PARAMETER: False}
    else:
        yield "dataset", {}


def _has_train_parameter(code: UserCode) -> bool:
    found = load_user_object(code)
    return callable(found) and TRAIN_PARAMETER in inspect.signature(found).parameters


def _read_part(code: UserCode, name: str, items: Any, folder: Path) -> DatasetPart:
    """Read all items once; samples go to a file."""
    if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
        raise make_error(
            code,
            f"{type(items).__name__} has no __len__ and __getitem__; allowed are map-style datasets: len(dataset) and "
            "dataset[k], which returns (x, y)",
        )
    with explain_own_errors(code, f"len({name})"):
        count = len(items)
    if not count:
        raise make_error(code, f"the {name} part has no samples")
    first_x, first_y = _read_item(code, name, items, 0)
    check_prepared_size("module", code.name, count * first_x.nbytes)
    targets = np.empty((count, *first_y.shape), first_y.dtype)
    with ArrayWriter(folder, name, (count, *first_x.shape), first_x.dtype) as writer:
        for number in range(count):
            x, y = _read_item(code, name, items, number)
            _check_same_type(code, f"{name}[{number}]: x", x, first_x)
            _check_same_type(code, f"{name}[{number}]: y", y, first_y)
            writer.append(x[np.newaxis])
            targets[number] = y
    samples: HostArray = np.load(writer.path, mmap_mode="r", allow_pickle=False)
    return DatasetPart(f"x of the {name} part", f"y of the {name} part", samples, targets)


def _read_item(code: UserCode, name: str, items: Any, number: int) -> tuple[HostArray, HostArray]:
    """Return sample and target of one item as arrays."""
    place = f"{name}[{number}]"
    with explain_own_errors(code, place):
        item = items[number]
    if not isinstance(item, tuple | list) or len(item) != 2:  # noqa: PLR2004 - sample and target
        raise make_error(code, f"{place} is {type(item).__name__}; return a pair (x, y)")
    arrays = [convert_to_array(value) for value in item]
    for which, value, array in zip("xy", item, arrays, strict=True):
        if array is None:
            raise make_error(
                code,
                f"{place}: {which} is {type(value).__name__}; allowed are tensors, arrays and numbers; convert a "
                "picture, for example with torchvision.transforms.ToTensor()",
            )
    x, y = arrays
    assert x is not None  # noqa: S101 - checked above
    assert y is not None  # noqa: S101 - same
    return x, y


def _check_same_type(code: UserCode, place: str, array: HostArray, first: HostArray) -> None:
    if array.shape != first.shape or array.dtype != first.dtype:
        raise make_error(
            code,
            f"{place} has the shape {array.shape} of {array.dtype}; in the first sample, it has {first.shape} of "
            f"{first.dtype}; all samples need one shape and type",
        )
