"""Rotary positions: rotation of queries and keys by angles that grow with the position."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from services.schema.arrays import Array, array_namespace

ANGLE_BASE = 10_000.0


def rotate_by_position(x: Array, direction: int = 1) -> Array:
    """Return vectors whose pairs of consecutive entries are rotated by angles in proportion to their position.

    x has the shape (B, T, heads, features), with an even number of features. Pair k at position t is rotated by
    t·10000^(-2k/features). The scalar product of a rotated query and a rotated key depends only on the distance of
    their positions. `direction` -1 rotates back, which is also the backward pass. Pairs are multiplied as complex
    numbers. J. Su et al., "RoFormer", 2021, section 3.2.2.
    """
    xp, (_, length, _, features) = array_namespace(x), x.shape
    complex_type = np.result_type(x.dtype, np.complex64)
    rotation = _rotation(xp, length, features, complex_type, direction)
    return (x.view(complex_type) * rotation).view(x.dtype)


@lru_cache(maxsize=16)  # every step needs the same ones
def _rotation(xp: Any, length: int, features: int, complex_type: npt.DTypeLike, direction: int) -> Array:
    """Return the complex factors of all positions and pairs, shape (T, 1, features / 2)."""
    frequencies = ANGLE_BASE ** (-np.arange(0, features, 2) / features)
    angles = direction * np.arange(length)[:, np.newaxis, np.newaxis] * frequencies
    return xp.asarray(np.exp(1j * angles).astype(complex_type))
