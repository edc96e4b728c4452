"""Synthetic pictures of ten classes, the same for every framework: one of six prototypes of the class, and noise."""

import numpy as np

CLASSES, PROTOTYPES = 10, 60


def make_pictures(samples, seed):
    """Return pictures of 8 x 8 pixels, and their classes."""
    prototypes = np.random.default_rng(0).standard_normal((PROTOTYPES, 64))
    rng = np.random.default_rng(seed)
    chosen = rng.integers(PROTOTYPES, size=samples)
    pictures = prototypes[chosen] + rng.standard_normal((samples, 64))
    return pictures.astype(np.float32), chosen % CLASSES
