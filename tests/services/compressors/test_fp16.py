"""The ends of half precision."""

import numpy as np

from services.compressors import Fp16


def test_what_is_too_large_is_clipped_and_never_infinite() -> None:
    """One infinity in a sum is an infinity in every replica."""
    x = np.array([-1e30, -65504, 70000, np.inf], "float32")

    payload, _ = Fp16().compress(x, None)

    assert Fp16().decompress(payload).tolist() == [-65504, -65504, 65504, 65504]


def test_what_is_not_a_number_stays_visible() -> None:
    """A diverged worker must be seen, not repaired on the wire."""
    payload, _ = Fp16().compress(np.array([np.nan], "float32"), None)

    assert np.isnan(Fp16().decompress(payload)).all()
