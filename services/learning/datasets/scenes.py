"""Generated pictures of coloured shapes, with the box and the class of every shape: a task of object detection."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from services.learning.datasets.base import Dataset, LearningTask, TrainTestData
from services.learning.datasets.split import random_split
from services.schema.arrays import Array, HostArray
from services.schema.conflicts import KeyConflict, raise_conflicts
from services.schema.limits import MAX_GENERATED_NUMBERS

CHANNELS = 3  # red, green, blue
NO_OBJECT = -1  # class of an unused row of the targets
RADIUS_RANGE = (0.09, 0.25)  # half the side of a shape's box, as a share of the side of the picture
PLACE_TRIES = 8  # places that are tried for a shape
MAX_COVERED_SHARE = 0.3  # two boxes may share this part of the smaller one
MIN_COLOUR_DIFFERENCE = 0.35  # between shape and background, in at least one channel


class ShapePlacement(NamedTuple):
    """One shape per picture: class, centre and half side. Shape of each array: (n,)."""

    classes: HostArray  # NO_OBJECT in pictures without this shape
    centre_x: HostArray  # in pixels
    centre_y: HostArray
    radius: HostArray  # half the side of the box, in pixels

    @property
    def boxes(self) -> HostArray:
        """Boxes (left, top, right, bottom) of the shapes, in pixels. Shape: (n, 4)."""
        x, y, radius = self.centre_x, self.centre_y, self.radius
        return np.stack([x - radius, y - radius, x + radius, y + radius], axis=-1)


class Scenes(Dataset):
    """Detection of shapes in generated pictures: circles, squares, triangles, diamonds and rings.

    Each picture (3, side, side) has a background of one colour and 1 to `max_shapes` shapes of random size, place and
    colour. Later shapes partly cover earlier ones. Normally distributed noise is added to all pixels. Pixels are about
    0 to 1. A target has `max_shapes` rows (class, left, top, right, bottom), in pixels; unused rows have the class -1.
    A shape for which no free place is found is left out.
    """

    kind: Literal["scenes"] = "scenes"
    samples: int = Field(default=5000, ge=2, description="number of pictures, for training and testing together")
    side: int = Field(default=32, ge=16, multiple_of=8, description="side of a picture in pixels")
    max_shapes: int = Field(default=3, ge=1, le=16, description="largest number of shapes in a picture")
    classes: int = Field(default=3, ge=1, le=5, description="number of kinds of shapes")
    noise: float = Field(default=0.1, ge=0, description="standard deviation of the noise; pixels are about 0 to 1")

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        raise_conflicts(self._find_too_large_arrays())
        return self

    def _find_too_large_arrays(self) -> Iterator[KeyConflict]:
        numbers_per_picture = CHANNELS * self.side**2
        if self.samples * numbers_per_picture > MAX_GENERATED_NUMBERS:
            message = (
                f"{self.samples:,} pictures of {CHANNELS} x {self.side} x {self.side} pixels are more than "
                f"{MAX_GENERATED_NUMBERS:,} generated numbers; "
                f"use at most {MAX_GENERATED_NUMBERS // numbers_per_picture:,} samples of this size"
            )
            yield KeyConflict(("samples",), message)

    def load(self, dtype: npt.DTypeLike) -> TrainTestData:
        rng = np.random.default_rng(self.seed)
        shapes = self._place_shapes(rng)
        pictures = self._draw_pictures(shapes, rng).astype(dtype)
        rows = [np.column_stack([shape.classes, shape.boxes]) for shape in shapes]
        targets = np.stack(rows, axis=1)
        targets[targets[..., 0] == NO_OBJECT, 1:] = 0
        train, test = random_split(self.samples, self.test_fraction, self.seed)
        task = LearningTask(inputs=pictures.shape[1:], outputs=self.classes, loss="detection")
        targets = targets.astype(dtype)
        return TrainTestData(pictures[train], targets[train], pictures[test], targets[test], task)

    def _place_shapes(self, rng: np.random.Generator) -> list[ShapePlacement]:
        """Return the shapes of all pictures, the lowest layer first."""
        shape_counts = rng.integers(1, self.max_shapes + 1, self.samples)
        shapes: list[ShapePlacement] = []
        for number in range(self.max_shapes):
            placement, is_free = self._choose_free_place(shapes, rng)
            is_used = (shape_counts > number) & is_free
            shapes.append(placement._replace(classes=np.where(is_used, placement.classes, NO_OBJECT)))
        return shapes

    def _choose_free_place(
        self, shapes: list[ShapePlacement], rng: np.random.Generator
    ) -> tuple[ShapePlacement, HostArray]:
        """Return one more shape per picture, and whether its place leaves the other shapes visible."""
        low, high = (share * self.side for share in RADIUS_RANGE)
        radius = rng.uniform(low, high, self.samples)
        centres = radius + (self.side - 2 * radius) * rng.random((2, PLACE_TRIES, self.samples))
        classes = rng.integers(self.classes, size=self.samples)
        tries = [ShapePlacement(classes, x, y, radius) for x, y in centres.swapaxes(0, 1)]
        is_free = np.array([_is_place_free(place, shapes) for place in tries])
        chosen = is_free.argmax(axis=0)  # the first free one
        x, y = centres[:, chosen, np.arange(self.samples)]
        return ShapePlacement(classes, x, y, radius), np.asarray(is_free.any(axis=0))

    def _draw_pictures(self, shapes: list[ShapePlacement], rng: np.random.Generator) -> HostArray:
        """Return the pictures with their noise, of shape (samples, 3, side, side)."""
        background = rng.random((self.samples, CHANNELS), np.float32)
        pictures = np.repeat(background, self.side**2, axis=1).reshape(-1, CHANNELS, self.side, self.side)
        for shape in shapes:
            colours = _distinct_colours(background, rng)
            for number, signed_distance in enumerate(SIGNED_DISTANCES):
                drawn = np.flatnonzero(shape.classes == number)
                opacity = _shape_opacity(signed_distance, shape, drawn, self.side)
                pictures[drawn] += opacity[:, None] * (colours[drawn, :, None, None] - pictures[drawn])
        pictures += np.float32(self.noise) * rng.standard_normal(pictures.shape, np.float32)
        return pictures


def _is_place_free(place: ShapePlacement, shapes: list[ShapePlacement]) -> HostArray:
    """Return for each picture whether a new shape at `place` hides at most a small part of each shape before it."""
    is_free = np.ones(len(place.radius), bool)
    for shape in shapes:
        reach = place.radius + shape.radius
        overlap_x = np.clip(reach - abs(place.centre_x - shape.centre_x), 0, None)
        overlap_y = np.clip(reach - abs(place.centre_y - shape.centre_y), 0, None)
        smaller_area = (2 * np.minimum(place.radius, shape.radius)) ** 2
        is_free &= (overlap_x * overlap_y <= MAX_COVERED_SHARE * smaller_area) | (shape.classes == NO_OBJECT)
    return is_free


def _distinct_colours(background: HostArray, rng: np.random.Generator) -> HostArray:
    """Return random colours, each of which differs visibly from the background of its picture."""
    colours = rng.random(background.shape, np.float32)
    is_similar = abs(colours - background).max(axis=1, keepdims=True) < MIN_COLOUR_DIFFERENCE
    return np.where(is_similar, (colours + np.float32(0.5)) % 1, colours)


def _shape_opacity(signed_distance: "SignedDistance", shape: ShapePlacement, drawn: HostArray, side: int) -> HostArray:
    """Return the share of each pixel that the shapes of the pictures `drawn` cover: smooth edges of one pixel."""
    pixel_centres = np.arange(side, dtype=np.float32) + np.float32(0.5)
    x, y, radius = (array[drawn].astype(np.float32)[:, None, None] for array in shape[1:])
    distances: HostArray = signed_distance(pixel_centres - x, pixel_centres[:, None] - y, radius)
    return np.clip(distances + np.float32(0.5), 0, 1)


# Distance of points (x, y) from the edge of a shape around the origin, positive inside, in pixels.
SignedDistance = Callable[[Array, Array, Array], Array]


def _circle_distance(x: Array, y: Array, radius: Array) -> Array:
    return radius - np.hypot(x, y)


def _square_distance(x: Array, y: Array, radius: Array) -> Array:
    return radius - np.maximum(abs(x), abs(y))


def _triangle_distance(x: Array, y: Array, radius: Array) -> Array:
    """Return the distance from an isosceles triangle with its top in the middle: base and height are the box's."""
    distance_to_side = (radius + y - 2 * abs(x)) / np.float32(np.sqrt(5))
    return np.minimum(distance_to_side, radius - y)


def _diamond_distance(x: Array, y: Array, radius: Array) -> Array:
    return (radius - abs(x) - abs(y)) / np.float32(np.sqrt(2))


def _ring_distance(x: Array, y: Array, radius: Array) -> Array:
    distance_to_centre = np.hypot(x, y)
    return np.minimum(radius - distance_to_centre, distance_to_centre - radius / 2)


SIGNED_DISTANCES: tuple[SignedDistance, ...] = (  # by class number
    _circle_distance,
    _square_distance,
    _triangle_distance,
    _diamond_distance,
    _ring_distance,
)
