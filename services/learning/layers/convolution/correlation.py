"""Contract of the cross-correlation of images with kernels, on which the convolution layer is built.

G groups · C channels and O outputs of a group · H, W sides of images, P, Q of outputs, K, L of kernels · B samples.
Images are (G, C, H, W, B), outputs (G, O, P, Q, B), kernels (G, O, C, K, L).
"""

from abc import ABC, abstractmethod

from services.learning.layout import Shape
from services.schema.arrays import Array


class Correlation(ABC):
    """Cross-correlation: y[o, p, q] = Σ_(c, k, l) w[o, c, k, l] · x[c, stride·p + k, stride·q + l], with padded x."""

    @abstractmethod
    def correlate(self, images: Array, kernels: Array) -> Array:
        """Return the cross-correlation of images with kernels."""

    @abstractmethod
    def kernel_gradient(self, images: Array, output_grad: Array, kernel_shape: Shape) -> Array:
        """Return the gradient of kernels of the shape `kernel_shape`, given that of the output."""

    @abstractmethod
    def image_gradient(self, image_shape: Shape, output_grad: Array, kernels: Array) -> Array:
        """Return the gradient of images of the shape `image_shape`, given that of the output."""
