"""Tests of every dataset: loading is deterministic, and training and test samples are disjoint."""

from typing import get_args

import numpy as np
import pytest
from pydantic import TypeAdapter

from services.learning.datasets import (
    AnyDataset,
    Dataset,
    Diabetes,
    Digits,
    Grammar,
    Linnerud,
    Scenes,
    SyntheticRegression,
)
from services.learning.datasets.files import AnyFileDataset
from services.learning.datasets.own import AnyOwnDataset

EXAMPLES: list[Dataset] = [
    Digits(),
    Digits(objective="denoising"),
    Linnerud(),
    Diabetes(),
    SyntheticRegression(samples=100),
    Scenes(samples=60, max_shapes=4, classes=5),
    Grammar(samples=60, length=24),
    Grammar(samples=60, length=24, shift=1, objective="masked_token"),
]

every_dataset = pytest.mark.parametrize("dataset", EXAMPLES, ids=repr)


def test_examples_table_contains_every_dataset() -> None:
    """test_every_file_format.py has the table of data files, and test_every_own_dataset.py that of users' code."""
    union, _ = get_args(AnyDataset)

    assert {type(dataset) for dataset in EXAMPLES} == set(get_args(union)) - {
        *get_args(AnyFileDataset),
        *get_args(AnyOwnDataset),
    }


@pytest.mark.parametrize("kind", [*get_args(get_args(AnyDataset)[0])], ids=lambda kind: kind.__name__)
def test_every_objective_of_a_dataset_has_a_loss(kind: type[Dataset]) -> None:
    """Messages about models that do not fit name the objectives that do."""
    field = kind.model_fields.get("objective")
    objectives = get_args(field.annotation) if field else ()
    if type(None) in objectives:  # the objective follows from the samples if it is not declared
        objectives = get_args(objectives[0])

    assert tuple(kind.objective_losses) == objectives


@every_dataset
def test_dataset_survives_a_json_round_trip(dataset: Dataset) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyDataset).validate_json(dataset.model_dump_json()) == dataset


@every_dataset
def test_loading_twice_gives_the_same_bits(dataset: Dataset) -> None:
    """Every node loads the dataset itself, and all ranks take their shares from the same order."""
    first, second = dataset.load("float32"), dataset.load("float32")

    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


@every_dataset
def test_no_sample_is_both_in_the_training_and_the_test_set(dataset: Dataset) -> None:
    """A test on training samples would not measure generalisation. Rows are compared with their targets, as bytes."""
    data = dataset.load("float64")

    train, test = (
        {(x.tobytes(), y.tobytes()) for x, y in zip(*part, strict=True)}
        for part in ((data.train_x, data.train_y), (data.test_x, data.test_y))
    )

    assert train.isdisjoint(test)


@every_dataset
def test_another_seed_gives_another_split_with_the_same_fraction(dataset: Dataset) -> None:
    """Repetitions with other splits show how much a result depends on the split."""
    data = dataset.load("float64")
    other = dataset.model_copy(update={"seed": 1}).load("float64")
    total = len(data.train_x) + len(data.test_x)

    assert data.test_x.tobytes() != other.test_x.tobytes()
    assert len(data.test_x) / total == pytest.approx(dataset.test_fraction, abs=0.01)


@every_dataset
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_have_the_shapes_and_types_of_the_task(dataset: Dataset, dtype: str) -> None:
    """Models are built from the task before they receive a sample."""
    data = dataset.load(dtype)
    target_dtype, target_shape = {
        "cross_entropy": (np.dtype(np.int64), ()),
        "mse": (np.dtype(dtype), (data.task.outputs,)),
        "detection": (np.dtype(dtype), (*data.train_y.shape[1:2], 5)),
        "denoising": (np.dtype(np.int64), ()),
        "next_token": (np.dtype(np.int64), data.task.inputs),
        "masked_token": (np.dtype(np.int64), data.task.inputs),
    }[data.task.loss]
    takes_tokens = data.task.loss in ("next_token", "masked_token")

    for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
        assert x.shape[1:] == data.task.inputs
        assert x.dtype == np.dtype(np.int64 if takes_tokens else dtype)
        assert len(x) == len(y)
        assert (y.dtype, y.shape[1:]) == (target_dtype, target_shape)
