"""Anchors: boxes of fixed size and place in an image, each of which a detector classifies and corrects.

S. Ren et al., "Faster R-CNN", NIPS 2015, section 3.1; on several levels of a pyramid: T.-Y. Lin et al., "Feature
Pyramid Networks for Object Detection", CVPR 2017.
"""

from functools import cache
from math import isqrt

import numpy as np

from services.schema.arrays import HostArray
from services.schema.component import FrozenRecord


class AnchorGrid(FrozenRecord):
    """Square anchors of a detector for square images: one grid of cells per level, some sizes at each cell.

    A detector has one row of outputs per anchor, in the order of `boxes`.
    """

    strides: tuple[int, ...] = (4, 8)  # in pixels: distance of two cells, by level
    sides: tuple[tuple[float, ...], ...] = ((6, 8, 10), (12, 14, 16))  # in pixels, by level; equally many per level

    @property
    def anchors_per_cell(self) -> int:
        """Number of anchors of a cell, all with the same centre."""
        return len(self.sides[0])

    def level_sides(self, image_side: int) -> tuple[int, ...]:
        """Return the side of the grid of cells of each level; the side of the image is a multiple of all strides."""
        return tuple(image_side // stride for stride in self.strides)

    def count(self, image_side: int) -> int:
        """Return the number of anchors of an image."""
        return self.anchors_per_cell * sum(side**2 for side in self.level_sides(image_side))

    def boxes(self, image_side: int) -> HostArray:
        """Return the anchors of an image as boxes (left, top, right, bottom) in pixels, shape (anchors, 4).

        They are ordered by level, row, column and size.
        """
        levels = zip(self.strides, self.sides, strict=True)
        return np.concatenate([_boxes_of_level(image_side, stride, sides) for stride, sides in levels])

    def image_side(self, anchor_count: int) -> int:
        """Return the side of the images that have this number of anchors."""
        unit_side = int(np.lcm.reduce(self.strides))
        return unit_side * isqrt(anchor_count // self.count(unit_side))


DEFAULT_ANCHORS = AnchorGrid()  # for objects of 6 to 16 pixels


@cache
def anchor_boxes(anchor_count: int) -> HostArray:
    """Return the boxes of the default anchors for images that have this number of anchors; the array is read-only."""
    boxes = DEFAULT_ANCHORS.boxes(DEFAULT_ANCHORS.image_side(anchor_count))
    boxes.setflags(write=False)
    return boxes


def _boxes_of_level(image_side: int, stride: int, sides: tuple[float, ...]) -> HostArray:
    centres = np.arange(stride / 2, image_side, stride)
    y, x, half = np.meshgrid(centres, centres, np.array(sides) / 2, indexing="ij")
    return np.stack([x - half, y - half, x + half, y + half], axis=-1).reshape(-1, 4)
