"""The stored arrays equal those of scikit-learn, and the datasets made of them are scaled as documented."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_linnerud

from services.learning.datasets import Dataset, Diabetes, Digits, Linnerud, SyntheticRegression
from services.learning.datasets.base import read_stored_arrays


def test_stored_digits_equal_those_of_scikit_learn() -> None:
    """Nodes use a stored copy, and a copy can be wrong."""
    original, copy = load_digits(), read_stored_arrays("digits")

    np.testing.assert_array_equal(copy["images"], original.images)
    np.testing.assert_array_equal(copy["labels"], original.target)


def test_stored_linnerud_equals_that_of_scikit_learn() -> None:
    """Exercise and physiology data of a fitness club."""
    original, copy = load_linnerud(), read_stored_arrays("linnerud")

    np.testing.assert_array_equal(copy["exercise"], original.data)
    np.testing.assert_array_equal(copy["physiology"], original.target)


def test_stored_diabetes_equals_that_of_scikit_learn() -> None:
    """The stored measurements are in their raw units."""
    original, copy = load_diabetes(scaled=False), read_stored_arrays("diabetes")

    np.testing.assert_array_equal(copy["measurements"], original.data)
    np.testing.assert_array_equal(copy["progression"][:, 0], original.target)


def test_training_and_test_parts_have_equal_shares_of_every_digit() -> None:
    """A test part with few samples of a digit would flatter a model that cannot recognise it."""
    data = Digits().load("float32")

    train, test = (np.bincount(y) / len(y) for y in (data.train_y, data.test_y))

    np.testing.assert_allclose(train, test, atol=0.003)


def test_pixels_lie_between_zero_and_one() -> None:
    """The range of the sensor defines the scale, so that scaling uses nothing of the test part."""
    data = Digits().load("float32")

    assert data.train_x.min() == data.test_x.min() == 0
    assert data.train_x.max() == data.test_x.max() == 1


@pytest.mark.parametrize("dataset", [Linnerud(), Diabetes(), SyntheticRegression(samples=64)], ids=repr)
def test_columns_are_standardised_with_the_training_part_only(dataset: Dataset) -> None:
    """Means over all samples would leak information about the test part into the training."""
    data = dataset.load("float64")

    for part in (data.train_x, data.train_y):
        np.testing.assert_allclose(part.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(part.std(axis=0), 1)
    assert abs(data.test_x.mean(axis=0)).max() > 1e-6


def test_synthetic_targets_are_only_partly_linear() -> None:
    """A linear model must explain a part, so that learning is quick, but not all, so that learning is needed."""
    data = SyntheticRegression(noise=0).load("float64")

    weights, *_ = np.linalg.lstsq(data.train_x, data.train_y, rcond=None)
    unexplained = ((data.train_x @ weights - data.train_y) ** 2).mean()

    assert 0.02 < unexplained < 0.5
