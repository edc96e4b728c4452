"""Convolution of images.

conv2d               the layer
correlation          contract: cross-correlation of images with kernels, and its gradients
patch_correlation    one matrix product with all patches of the images (im2col)
row_correlation      one matrix product for each row of the output, for any stride and padding
"""

from services.learning.layers.convolution.conv2d import Conv2d

__all__ = ["Conv2d"]
