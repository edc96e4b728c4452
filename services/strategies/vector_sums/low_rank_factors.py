"""Factors of low rank: the arrays of a model that they replace, random and orthonormal columns, and products."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from services.compressors import ArrayShape
from services.learning.layout import VectorRange
from services.schema.arrays import Array, HostArray, Vector

SPAWN_KEY = (0x10AA,)  # other numbers than compressors, dropout and noise draw from the same seeds
# Shorter columns, relative to their length before orthogonalisation, are rounding errors of float64.
MIN_RELATIVE_NORM = 1e-10


class FactoredArray(NamedTuple):
    """Array of the model, as a matrix of shape (rows, columns), whose product of factors has a low rank."""

    vector_range: VectorRange  # of the parameter vector
    rows: int
    columns: int
    rank: int

    def matrix(self, vector: Vector) -> Array:
        """Return the entries of `vector` in this array as a matrix, without a copy."""
        return self.vector_range.view(vector).reshape(self.rows, self.columns)


class LowRankLayout(NamedTuple):
    """Arrays of a parameter vector that are replaced by factors, and ranges that are summed without compression."""

    factored: tuple[FactoredArray, ...]
    uncompressed: tuple[VectorRange, ...]

    @classmethod
    def of(cls, array_shapes: Sequence[ArrayShape], rank: int, min_ratio: float) -> "LowRankLayout":
        """Return the layout for arrays of these shapes, in the order of the parameter vector.

        An array with several axes becomes a matrix: its first axis, and all others as one. It is replaced by factors
        if it has at least `min_ratio` times as many entries as they have.
        """
        ends = accumulate(map(prod, array_shapes), initial=0)
        ranges = [VectorRange(start, stop) for start, stop in pairwise(ends)]
        factored = []
        for vector_range, shape in zip(ranges, array_shapes, strict=True):
            if len(shape) > 1 and vector_range.size:
                rows, columns = shape[0], vector_range.size // shape[0]
                array = FactoredArray(vector_range, rows, columns, min(rank, rows, columns))
                if vector_range.size >= min_ratio * array.rank * (rows + columns):
                    factored.append(array)
        replaced = {array.vector_range for array in factored}
        return cls(tuple(factored), tuple(each for each in ranges if each not in replaced))

    @property
    def left_entry_count(self) -> int:
        """Entries of all left factors and of the uncompressed ranges, which are summed together."""
        return sum(each.size for each in self.uncompressed) + sum(each.rows * each.rank for each in self.factored)

    @property
    def right_entry_count(self) -> int:
        """Entries of all right factors."""
        return sum(each.columns * each.rank for each in self.factored)


def draw_right_factor(array: FactoredArray, array_number: int, seed: int, sum_number: int) -> HostArray:
    """Return a random right factor of shape (columns, rank), from the normal distribution, in float64.

    It is a function of the numbers of the array and the sum, and of `seed`: NumPy draws it on all devices, so it is
    equal on all ranks.
    """
    entropy = np.random.SeedSequence((seed, sum_number, array_number), spawn_key=SPAWN_KEY)
    return np.random.Generator(np.random.PCG64(entropy)).standard_normal((array.columns, array.rank))


def orthonormalise(matrix: HostArray) -> HostArray:
    """Return orthonormal columns that span the columns of `matrix`, by the modified Gram-Schmidt process.

    Sums have the same order on every host, so ranks with equal bits get equal bits. The process runs twice, in float64:
    columns are then orthogonal up to rounding even if they were almost parallel. A column that depends on earlier ones
    becomes 0, as does a column of zeros. Values that are not finite give NaN.
    """
    once = _orthonormalise_rows(np.array(matrix.T, "float64", order="C"))
    return np.ascontiguousarray(_orthonormalise_rows(once).T).astype(matrix.dtype, copy=False)


def _orthonormalise_rows(rows: HostArray) -> HostArray:
    """Replace the rows of a matrix by orthonormal rows, in place, and return the matrix."""
    original_norms = np.sqrt((rows * rows).sum(axis=1))
    for index, row in enumerate(rows):
        norm = np.sqrt((row * row).sum())
        if norm <= MIN_RELATIVE_NORM * original_norms[index]:
            row[:] = 0
            continue
        np.divide(row, norm, out=row)
        later = rows[index + 1 :]
        later -= (later * row).sum(axis=1, keepdims=True) * row
    return rows


def multiply_factors(left: Array, right: Array) -> Array:
    """Return left·rightᵀ, of shape (rows, columns), by one product per column of the factors.

    Unlike a product of matrices, it has the same bits on every device, so replicas stay equal.
    """
    product = left[:, :1] * right[:, 0]
    for column in range(1, left.shape[1]):
        product += left[:, column : column + 1] * right[:, column]
    return product
