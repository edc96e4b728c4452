"""Range and special values of half precision."""

import numpy as np

from services.compressors import Fp16


def test_values_outside_the_fp16_range_become_infinite() -> None:
    """A clipped gradient would change the training without notice; an infinite one ends the trial with a reason."""
    x = np.array([-1e30, -65504, 70000, np.inf], "float32")

    payload, _ = Fp16().compress(x, None)

    assert Fp16().decompress(payload).tolist() == [-np.inf, -65504, np.inf, np.inf]


def test_nan_stays_nan() -> None:
    """The divergence of a worker must stay visible; the compressor must not hide it."""
    payload, _ = Fp16().compress(np.array([np.nan], "float32"), None)

    assert np.isnan(Fp16().decompress(payload)).all()
