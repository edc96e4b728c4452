"""Cross-correlation as one matrix product with all patches of the images (im2col).

K. Chellapilla et al., "High performance convolutional neural networks for document processing", IWFHR 2006.
"""

from math import prod

from services.learning.layers.convolution.correlation import Correlation
from services.learning.layers.windows import SlidingWindow
from services.learning.layout import Shape
from services.schema.arrays import Array, array_namespace


class PatchCorrelation(Correlation):
    """Cross-correlation with stride 1 and without padding. `correlation` describes the shapes."""

    def correlate(self, images: Array, kernels: Array) -> Array:
        groups, outputs, _, kernel, _ = kernels.shape
        rows, columns = SlidingWindow(kernel).output_sides(images.shape[1:])
        products = kernels.reshape(groups, outputs, -1) @ extract_patches(images, kernel)
        return products.reshape(groups, outputs, rows, columns, images.shape[4])

    def kernel_gradient(self, images: Array, output_grad: Array, kernel_shape: Shape) -> Array:
        patches = extract_patches(images, kernel_shape[3])
        groups, outputs, *positions = output_grad.shape
        grad_rows = output_grad.reshape(groups, outputs, prod(positions))
        return (grad_rows @ patches.swapaxes(1, 2)).reshape(kernel_shape)

    def image_gradient(self, image_shape: Shape, output_grad: Array, kernels: Array) -> Array:
        groups, outputs, *positions = output_grad.shape
        grad_rows = output_grad.reshape(groups, outputs, prod(positions))
        patches_grad = kernels.reshape(groups, outputs, -1).swapaxes(1, 2) @ grad_rows
        return sum_patches(patches_grad, image_shape, kernels.shape[3])


def extract_patches(images: Array, kernel: int) -> Array:
    """Return all patches of kernel x kernel pixels, one column per position and image.

    Images of the shape (G, C, H, W, B) give columns of the shape (G, C·K·K, P·Q·B), where P = H - K + 1 and Q likewise.
    With a kernel of 1x1, the columns are a view of the images.
    """
    sliding_window_view = array_namespace(images).lib.stride_tricks.sliding_window_view
    windows = sliding_window_view(images, (kernel, kernel), axis=(2, 3)).transpose(0, 1, 5, 6, 2, 3, 4)
    return windows.reshape(len(images), prod(windows.shape[1:4]), prod(windows.shape[4:]))


def sum_patches(columns: Array, image_shape: Shape, kernel: int) -> Array:
    """Return images of the shape `image_shape`, whose pixels are sums over all patches that contain them (col2im).

    The function is the adjoint of `extract_patches`.
    """
    groups, channels, *sides, batch = image_shape
    images = array_namespace(columns).zeros((groups * channels, *sides, batch), columns.dtype)
    window = SlidingWindow(kernel)
    pixels = columns.reshape(groups * channels, kernel**2, *window.output_sides(images.shape), batch)
    for number, pixel in enumerate(window.pixel_slices(images.shape)):
        images[pixel] += pixels[:, number]
    return images.reshape(image_shape)
