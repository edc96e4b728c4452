"""Cross-correlation as one matrix product for each row of the output.

A copy of the padded images holds every row L times, shifted by 0 to L - 1 columns: (G, row, shift, C, Q, B). In this
copy, all pixels under the kernels at one row of the output are one matrix of K·L·C rows, without a further copy: K
consecutive rows of the copy. So the copy is L times as large as the images, where that of im2col is K·L times as large.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from services.learning.layers.convolution.correlation import Correlation
from services.learning.layout import Shape
from services.schema.arrays import Array, array_namespace


@dataclass(frozen=True)
class CorrelationAxis:
    """Rows or columns of a cross-correlation: kernels move by `stride` pixels, over zeros before and after the pixels.

    A negative number of zeros removes pixels.
    """

    stride: int
    zeros_before: int
    zeros_after: int

    def count_outputs(self, pixels: int, kernel: int) -> int:
        """Return the number of outputs along the axis."""
        return (pixels + self.zeros_before + self.zeros_after - kernel) // self.stride + 1

    def adjoint_parts(self, pixels: int, outputs: int, kernel: int) -> "Iterator[AdjointPart]":
        """Yield the parts of the adjoint, which maps the outputs' gradient to the pixels' gradient.

        Pixels whose positions have the same remainder modulo the stride meet the same entries of the kernel, one for
        each of some consecutive outputs. So the gradient of these pixels is a cross-correlation of the outputs'
        gradient with the reversed entries. Remainders without entries of the kernel are left out: their gradient is 0.
        """
        for remainder in range(min(self.stride, kernel)):
            entries = len(range(remainder, kernel, self.stride))
            offset = remainder - self.zeros_before  # pixel offset + stride·k has this remainder, for all k
            first, end = -(offset // self.stride), -((offset - pixels) // self.stride)  # k of pixels that exist
            if first < end:
                axis = CorrelationAxis(1, entries - 1 - first, end - outputs)
                of_pixels = slice(offset + self.stride * first, None, self.stride)
                yield AdjointPart(of_pixels, slice(remainder, None, self.stride), axis)


class AdjointPart(NamedTuple):
    """Part of the adjoint along one axis: some pixels, and the cross-correlation that gives their gradient."""

    pixels: slice
    kernel_entries: slice  # to be reversed
    axis: CorrelationAxis


@dataclass(frozen=True)
class RowCorrelation(Correlation):
    """Cross-correlation with any stride and padding. `correlation` describes the shapes."""

    rows: CorrelationAxis
    columns: CorrelationAxis

    def correlate(self, images: Array, kernels: Array) -> Array:
        xp, (groups, outputs, _, *sides) = array_namespace(images), kernels.shape
        patches = self._patches_by_row(images, sides)
        _, rows, patch_size, row_size = patches.shape
        kernel_rows = kernels.transpose(0, 1, 3, 4, 2).reshape(groups, 1, outputs, patch_size)
        result = xp.empty((groups, outputs, rows, row_size), images.dtype)
        xp.matmul(kernel_rows, patches, out=result.transpose(0, 2, 1, 3))
        columns = self.columns.count_outputs(images.shape[3], sides[1])
        return result.reshape(groups, outputs, rows, columns, images.shape[4])

    def kernel_gradient(self, images: Array, output_grad: Array, kernel_shape: Shape) -> Array:
        groups, outputs, channels, *sides = kernel_shape
        patches = self._patches_by_row(images, sides)
        _, rows, _, row_size = patches.shape
        grad_columns = output_grad.reshape(groups, outputs, rows, row_size).transpose(0, 2, 3, 1)
        gradient = (patches @ grad_columns).sum(axis=1)
        return gradient.reshape(groups, *sides, channels, outputs).transpose(0, 4, 3, 1, 2)

    def image_gradient(self, image_shape: Shape, output_grad: Array, kernels: Array) -> Array:
        kernels = kernels.swapaxes(1, 2)
        if self.rows.stride == self.columns.stride == 1:
            ((_, gradient),) = self._image_gradient_parts(image_shape, output_grad, kernels)
            return gradient
        gradient = array_namespace(output_grad).zeros(image_shape, output_grad.dtype)
        for pixels, part in self._image_gradient_parts(image_shape, output_grad, kernels):
            gradient[pixels] = part
        return gradient

    def _image_gradient_parts(
        self, image_shape: Shape, output_grad: Array, kernels: Array
    ) -> Iterator[tuple[tuple[slice, ...], Array]]:
        """Yield indices of pixels, and the gradient of these pixels. The kernels have the shape (G, C, O, K, L)."""
        sides = zip((self.rows, self.columns), image_shape[2:4], output_grad.shape[2:4], kernels.shape[3:], strict=True)
        for rows, columns in product(*(list(axis.adjoint_parts(*of_axis)) for axis, *of_axis in sides)):
            entries = kernels[..., rows.kernel_entries, columns.kernel_entries][..., ::-1, ::-1]
            gradient = RowCorrelation(rows.axis, columns.axis).correlate(output_grad, entries)
            yield (slice(None), slice(None), rows.pixels, columns.pixels), gradient

    def _patches_by_row(self, images: Array, kernel_sides: Sequence[int]) -> Array:
        """Return the pixels under the kernels for each row of outputs: a view (G, P, K·L·C, Q·B) of one copy."""
        xp, (groups, channels, height, width, batch) = array_namespace(images), images.shape
        kernel_rows, kernel_columns = kernel_sides
        columns = self.columns.count_outputs(width, kernel_columns)
        padded_height = height + self.rows.zeros_before + self.rows.zeros_after
        shifted = xp.zeros((groups, padded_height, kernel_columns, channels, columns, batch), images.dtype)
        rows, pixel_rows = _find_pixels(padded_height, 1, -self.rows.zeros_before, height)
        for shift in range(kernel_columns):
            offset = shift - self.columns.zeros_before
            outputs, pixels = _find_pixels(columns, self.columns.stride, offset, width)
            shifted[:, rows, shift, :, outputs] = images[:, :, pixel_rows, pixels].transpose(0, 2, 1, 3, 4)
        output_rows = self.rows.count_outputs(height, kernel_rows)
        shape = groups, output_rows, kernel_rows * kernel_columns * channels, columns * batch
        group_stride, row_stride, *_, item_stride = shifted.strides
        strides = group_stride, self.rows.stride * row_stride, shape[3] * item_stride, item_stride
        return xp.lib.stride_tricks.as_strided(shifted, shape, strides)


def _find_pixels(positions: int, stride: int, offset: int, pixels: int) -> tuple[slice, slice]:
    """Return the positions k for which the pixel offset + stride·k exists, and these pixels."""
    first, end = max(0, -(offset // stride)), min(positions, -((offset - pixels) // stride))
    if first >= end:
        return slice(0), slice(0)
    return slice(first, end), slice(offset + stride * first, offset + stride * (end - 1) + 1, stride)
