"""Denoising diffusion model: generates images by removing noise step by step.

model           the model `diffusion_mini`
unet            the network that predicts the noise in an image
noise_schedule  share of signal and noise at each step
sampling        generation of images from noise
"""

from services.learning.models.diffusion.model import DiffusionMini

__all__ = ["DiffusionMini"]
