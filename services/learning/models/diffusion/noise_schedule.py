"""Schedule of the noise: which share of signal and noise an image has at each diffusion step."""

from functools import cache

import numpy as np

from services.schema.arrays import Array, HostArray, array_namespace

FIRST_VARIANCE, LAST_VARIANCE = 1e-4, 0.02  # of the noise that a step adds, at 1,000 steps
REFERENCE_STEPS = 1000


@cache
def cumulative_alphas(step_count: int) -> HostArray:
    """Return the cumulative products ᾱ of α = 1 - β over the diffusion steps ("alpha bar"), shape (steps,).

    ᾱₜ is the share of the signal in the variance of an image after step t. The variance β that a step adds grows
    linearly: J. Ho et al., "Denoising Diffusion Probabilistic Models" (DDPM), NeurIPS 2020, section 4. With fewer than
    1,000 steps, each has a larger β, so that the last image is noise, too. The array is read-only.
    """
    scale = REFERENCE_STEPS / step_count
    variances = np.linspace(FIRST_VARIANCE * scale, LAST_VARIANCE * scale, step_count)
    alphas = np.cumprod(1 - variances)
    alphas.setflags(write=False)
    return alphas


def add_noise(images: Array, noise: Array, share: Array) -> Array:
    """Return √ᾱ·image + √(1 - ᾱ)·noise, with one share ᾱ of the signal per image; images are (B, C, H, W)."""
    xp, share = array_namespace(images), share[:, None, None, None]
    return xp.sqrt(share) * images + xp.sqrt(1 - share) * noise
