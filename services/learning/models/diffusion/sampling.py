"""Generation of images from noise, with a model that predicts noise."""

from itertools import pairwise
from math import sqrt

import numpy as np

from services.learning.models.base import OutputFunction
from services.learning.models.diffusion.noise_schedule import cumulative_alphas
from services.schema.arrays import Array, array_namespace


def join_conditions(images: Array, steps: Array, classes: Array) -> Array:
    """Return inputs of the network: images (B, C, H, W) with a plane of their steps and a plane of their classes."""
    xp = array_namespace(images)
    conditions = xp.stack([steps, classes], axis=1).astype(images.dtype)
    planes = xp.broadcast_to(conditions[:, :, None, None], (*conditions.shape, *images.shape[2:]))
    return xp.concatenate([images, planes], axis=1)


def generate_images(
    predict_noise: OutputFunction, noise: Array, classes: Array, step_count: int, sampling_steps: int
) -> Array:
    """Return images of the given classes that arise from `noise` (B, C, H, W), with pixels in [-1, 1].

    Of the model's `step_count` diffusion steps, `sampling_steps` are done, at equal distances. No further noise is
    drawn (η = 0): J. Song et al., "Denoising Diffusion Implicit Models", ICLR 2021, eq. 12. At each step, the predicted
    image is cut off at -1 and 1.
    """
    xp, images = array_namespace(noise), noise
    steps = np.linspace(step_count - 1, 0, sampling_steps).round().astype(int)
    shares = [float(share) for share in cumulative_alphas(step_count)[steps]]
    for step, (share, next_share) in zip(steps, pairwise([*shares, 1.0]), strict=True):
        inputs = join_conditions(images, xp.full(len(images), int(step)), classes)
        predicted = (images - sqrt(1 - share) * predict_noise(inputs)) / sqrt(share)
        predicted = predicted.clip(-1, 1)
        remaining_noise = (images - sqrt(share) * predicted) / sqrt(1 - share)
        images = sqrt(next_share) * predicted + sqrt(1 - next_share) * remaining_noise
    return images
