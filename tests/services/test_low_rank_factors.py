"""Factors of low rank: which arrays they replace, and orthonormal columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learning.layout import VectorRange
from services.strategies.vector_sums.low_rank_factors import (
    LowRankLayout,
    draw_right_factor,
    multiply_factors,
    orthonormalise,
)

CONVOLUTION = (8, 4, 3, 3)  # outputs, inputs, height and width of the kernel


def test_array_with_several_axes_is_a_matrix_with_one_row_per_output() -> None:
    """The first axis of a convolution are its outputs; the paper makes the same matrix of it."""
    layout = LowRankLayout.of((CONVOLUTION, (8,)), rank=2, min_ratio=1)

    (array,) = layout.factored
    assert (array.rows, array.columns, array.rank) == (8, 36, 2)
    assert array.vector_range == VectorRange(0, 288)
    assert layout.uncompressed == (VectorRange(288, 296),)
    assert array.matrix(np.arange(296))[1, 0] == 36


@pytest.mark.parametrize(("min_ratio", "is_factored"), [(0, True), (3.27, True), (3.28, False)])
def test_array_with_a_smaller_ratio_is_not_compressed(min_ratio: float, is_factored: bool) -> None:
    """288 entries and factors of 2·(8 + 36) = 88 entries: a ratio of 3.27."""
    layout = LowRankLayout.of((CONVOLUTION,), rank=2, min_ratio=min_ratio)

    assert bool(layout.factored) == is_factored
    assert layout.left_entry_count + layout.right_entry_count == (88 if is_factored else 288)


@given(
    shapes=st.lists(st.lists(st.integers(0, 9), min_size=0, max_size=4).map(tuple), min_size=1, max_size=5),
    rank=st.integers(1, 12),
    min_ratio=st.floats(0, 4),
)
def test_every_entry_is_either_factored_or_summed_uncompressed(
    shapes: list[tuple[int, ...]], rank: int, min_ratio: float
) -> None:
    """An entry that is in no message would never be trained."""
    layout = LowRankLayout.of(shapes, rank, min_ratio)

    ranges = sorted([*(array.vector_range for array in layout.factored), *layout.uncompressed])
    entries = [index for start, stop in ranges for index in range(start, stop)]
    assert entries == list(range(sum(int(np.prod(shape)) for shape in shapes)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(50, 1), (50, 4), (9, 9), (300, 40)])
def test_columns_are_orthonormal_and_span_the_same_space(shape: tuple[int, int], dtype: str) -> None:
    """Otherwise the product of the factors would not be the projection of the gradient."""
    matrix = np.random.default_rng(1).standard_normal(shape).astype(dtype)

    columns = orthonormalise(matrix)

    tolerance = 1e-6 if dtype == "float32" else 1e-14
    assert columns.dtype == dtype
    np.testing.assert_allclose(columns.T @ columns, np.eye(shape[1]), atol=tolerance)
    np.testing.assert_allclose(columns @ (columns.T @ matrix), matrix, atol=20 * tolerance)


def test_almost_parallel_columns_become_orthogonal() -> None:
    """One pass of Gram-Schmidt would leave an angle that is far from 90 degrees."""
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((60, 1)) + 1e-8 * rng.standard_normal((60, 5))

    columns = orthonormalise(matrix)

    np.testing.assert_allclose(columns.T @ columns, np.eye(5), atol=1e-14)


def test_column_that_depends_on_others_and_column_of_zeros_become_zero() -> None:
    """Their remainder is a rounding error, or 0, by which nothing may be divided."""
    first, second = np.random.default_rng(3).standard_normal((2, 20))
    matrix = np.stack([first, np.zeros(20), 3 * first, second, first - second], axis=1)

    with np.errstate(all="raise"):
        columns = orthonormalise(matrix)

    np.testing.assert_allclose(columns.T @ columns, np.diag([1.0, 0, 0, 1, 0]), atol=1e-14)


@pytest.mark.parametrize("scale", [1e-35, 1e35])
def test_length_of_columns_does_not_matter(scale: float) -> None:
    """Gradients become small at the end of training; squares of fp32 values would underflow."""
    matrix = np.random.default_rng(4).standard_normal((20, 3)).astype("float32")

    np.testing.assert_allclose(orthonormalise(matrix * np.float32(scale)), orthonormalise(matrix), atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_value_that_is_not_finite_gives_nan(value: float) -> None:
    """A column that becomes 0 instead would hide that the training has diverged."""
    matrix = np.random.default_rng(5).standard_normal((20, 3))
    matrix[4, 1] = value

    with np.errstate(all="ignore"):
        columns = orthonormalise(matrix)

    assert np.isnan(columns[:, 1:]).any(axis=0).all()


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), rank=st.integers(1, 9))
def test_product_of_factors_is_the_product_of_matrices(rows: int, columns: int, rank: int) -> None:
    """It is computed column by column, so that its bits do not depend on a library."""
    rng = np.random.default_rng(6)
    left, right = rng.standard_normal((rows, rank)), rng.standard_normal((columns, rank))

    np.testing.assert_allclose(multiply_factors(left, right), left @ right.T, atol=1e-13)


def test_drawn_factors_differ_by_seed_sum_and_array() -> None:
    """Equal factors of arrays or steps would always leave out the same directions."""
    (array,) = LowRankLayout.of((CONVOLUTION,), rank=2, min_ratio=1).factored

    drawn = {
        draw_right_factor(array, *key).tobytes() for key in [(0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1), (0, 1, 0)]
    }

    assert len(drawn) == 4
