"""Call of a function of the user that returns the arrays of a dataset."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compose.own_code.dataset_parts import DatasetPart, convert_to_array
from services.learning.datasets.own import PythonDataset
from services.learning.own_code import UserCode, call_user_object, make_error

SPLIT_NAMES, WHOLE_NAMES = ("train_x", "train_y", "test_x", "test_y"), ("x", "y")
ALLOWED = f"return a tuple ({', '.join(SPLIT_NAMES)}) or ({', '.join(WHOLE_NAMES)}), or a dict with these keys"


def call_data_function(
    dataset: PythonDataset,
    arguments: Mapping[str, Any],
    folder: Path,  # noqa: ARG001 - the arrays are in memory
) -> list[DatasetPart]:
    """Return the training part and the test part, or one part that has not been split.

    Raises:
        OwnCodeError: the function raises an error, or its result is no such tuple or dict of arrays.
    """
    code = dataset.module
    values = _name_values(code, call_user_object(code, **arguments))
    arrays = {}
    for name, value in values.items():
        array = convert_to_array(value)
        if array is None:
            given = f"an array of {value.dtype.name}" if isinstance(value, np.ndarray) else type(value).__name__
            raise make_error(code, f"{name} is {given}; allowed are arrays of numbers or booleans")
        arrays[name] = array
    return [DatasetPart(x, y, arrays[x], arrays[y]) for x, y in _pairs([*arrays])]


def _name_values(code: UserCode, result: Any) -> dict[str, Any]:
    if isinstance(result, tuple | list) and len(result) in (len(WHOLE_NAMES), len(SPLIT_NAMES)):
        return dict(zip(WHOLE_NAMES if len(result) == len(WHOLE_NAMES) else SPLIT_NAMES, result, strict=True))
    if isinstance(result, Mapping) and set(result) in (set(WHOLE_NAMES), set(SPLIT_NAMES)):
        return {name: result[name] for name in (*SPLIT_NAMES, *WHOLE_NAMES) if name in result}
    raise make_error(code, f"the result is {_describe(result)}; {ALLOWED}")


def _describe(result: Any) -> str:
    if isinstance(result, Mapping):
        return f"a dict with the keys {', '.join(map(str, result)) or 'none'}"
    if isinstance(result, tuple | list):
        return f"a {type(result).__name__} of {len(result)}"
    return type(result).__name__


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    yield from zip(names[::2], names[1::2], strict=True)
