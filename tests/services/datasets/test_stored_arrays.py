"""The stored arrays are scikit-learn's own, and what is made of them is what the docstrings say."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_linnerud

from services.learning.datasets import Dataset, Diabetes, Digits, Linnerud, SyntheticRegression
from services.learning.datasets.base import read_stored_arrays


def test_digits_are_scikit_learns() -> None:
    """Nodes carry a copy; a copy can be wrong."""
    original, copy = load_digits(), read_stored_arrays("digits")

    np.testing.assert_array_equal(copy["images"], original.images)
    np.testing.assert_array_equal(copy["labels"], original.target)


def test_linnerud_is_scikit_learns() -> None:
    """The same for the fitness club."""
    original, copy = load_linnerud(), read_stored_arrays("linnerud")

    np.testing.assert_array_equal(copy["exercise"], original.data)
    np.testing.assert_array_equal(copy["physiology"], original.target)


def test_diabetes_is_scikit_learns() -> None:
    """The same for the patients, in their raw units."""
    original, copy = load_diabetes(scaled=False), read_stored_arrays("diabetes")

    np.testing.assert_array_equal(copy["measurements"], original.data)
    np.testing.assert_array_equal(copy["progression"][:, 0], original.target)


def test_both_parts_of_the_digits_hold_every_digit_alike() -> None:
    """A test part short of a digit would flatter whoever cannot read it."""
    data = Digits().load("float32")

    train, test = (np.bincount(y) / len(y) for y in (data.train_y, data.test_y))

    np.testing.assert_allclose(train, test, atol=0.003)


def test_pixels_lie_between_zero_and_one() -> None:
    """The scale is the sensor's, not the data's: nothing is learned from the test part."""
    data = Digits().load("float32")

    assert data.train_x.min() == data.test_x.min() == 0
    assert data.train_x.max() == data.test_x.max() == 1


@pytest.mark.parametrize("dataset", [Linnerud(), Diabetes(), SyntheticRegression(samples=64)], ids=repr)
def test_columns_are_standardised_by_the_training_part_alone(dataset: Dataset) -> None:
    """Means over all samples would tell the training something of the test."""
    data = dataset.load("float64")

    for part in (data.train_x, data.train_y):
        np.testing.assert_allclose(part.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(part.std(axis=0), 1)
    assert abs(data.test_x.mean(axis=0)).max() > 1e-6


def test_synthetic_targets_are_more_than_a_line() -> None:
    """A line explains part of them, else nothing could be learned quickly; not all, else nothing had to be."""
    data = SyntheticRegression(noise=0).load("float64")

    weights, *_ = np.linalg.lstsq(data.train_x, data.train_y, rcond=None)
    unexplained = ((data.train_x @ weights - data.train_y) ** 2).mean()

    assert 0.02 < unexplained < 0.5
