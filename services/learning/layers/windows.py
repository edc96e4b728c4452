"""Square windows that slide over images: positions, pixels, and padding."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from services.learning.layout import Shape
from services.schema.arrays import Array, array_namespace

PixelSlices = tuple[slice, slice, slice]  # of channels, rows and columns of padded images


@dataclass(frozen=True)
class SlidingWindow:
    """Window of kernel x kernel pixels that slides over images in steps of `stride` pixels.

    Images have the shape (C, H, W, B). They have a border of `padding` pixels on each side; the window stays inside the
    border. Rows and columns at the end that a further step of the window would leave are ignored.
    """

    kernel: int
    stride: int = 1
    padding: int = 0

    def count_positions(self, side: int) -> int:
        """Return the number of positions of the window along a side of `side` pixels."""
        return (side + 2 * self.padding - self.kernel) // self.stride + 1

    def output_sides(self, image_shape: Shape) -> tuple[int, int]:
        """Return the numbers of positions along rows and columns of images of the shape (C, H, W, …)."""
        return self.count_positions(image_shape[1]), self.count_positions(image_shape[2])

    def pad(self, images: Array, value: float = 0.0) -> Array:
        """Return the images with their border, which has the value `value`; without a border, the images themselves."""
        if self.padding == 0:
            return images
        border = (self.padding, self.padding)
        return array_namespace(images).pad(images, ((0, 0), border, border, (0, 0)), constant_values=value)

    def remove_padding(self, padded_images: Array) -> Array:
        """Return padded images without their border, as a view; the adjoint of `pad`."""
        _, height, width, _ = padded_images.shape
        return padded_images[:, self.padding : height - self.padding, self.padding : width - self.padding]

    def pixel_slices(self, image_shape: Shape) -> Iterator[PixelSlices]:
        """Yield the slices of padded images that select one pixel of the window at all positions.

        Pixels come row by row. Each selection has the shape (C, positions along rows, positions along columns, B).
        """
        lengths = [self.stride * (count - 1) + 1 for count in self.output_sides(image_shape)]
        for offsets in product(range(self.kernel), repeat=2):
            rows, columns = (slice(start, start + n, self.stride) for start, n in zip(offsets, lengths, strict=True))
            yield slice(None), rows, columns
