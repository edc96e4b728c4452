"""Residuals: the part of a vector that a compressor has not sent yet."""

from services.schema.arrays import Vector, array_namespace


def reset_non_finite(residual: Vector) -> int:
    """Set the entries that are NaN or infinite to zero, in place, and return their number.

    A residual that isn't finite would make all later payloads useless, also after gradients have become finite again.
    """
    xp = array_namespace(residual)
    is_finite = xp.isfinite(residual)
    if is_finite.all():
        return 0
    residual[~is_finite] = 0
    return int(residual.size) - int(xp.count_nonzero(is_finite))
