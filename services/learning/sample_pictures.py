"""Pictures that show what a trained model does, in a compact form for the log."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from services.schema.arrays import HostArray

MAX_LEVEL = 15  # pixels have 16 levels: two pixels are one byte
PICTURE_AXES = 4  # pictures, channels, rows, columns
MAX_PIXELS = 1 << 22

CHANNEL_COUNTS = (1, 3)  # grey, or red, green and blue

PictureContent: TypeAlias = Literal["generated", "detected"]
CONTENTS: Mapping[str, PictureContent] = {"generated": "generated", "detected": "detected"}


class PictureBox(NamedTuple):
    """Object in a picture, true or predicted, with its box in pixels."""

    class_number: int
    score: float | None  # probability that the model gives to the object; None if the object is true
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class SamplePictures:
    """Pictures that a model has generated, or test pictures with the objects that a model has detected in them."""

    content: PictureContent
    levels: HostArray  # shape (n, C, H, W), integers from 0 to `MAX_LEVEL`; C is 1 or 3
    class_numbers: tuple[int, ...]  # of generated pictures: the class that was asked for
    boxes: tuple[tuple[PictureBox, ...], ...] = ()  # of each picture with detected objects

    def to_log_value(self) -> dict[str, Any]:
        """Return the pictures as a value of a log event; the inverse of `read_sample_pictures`."""
        levels = self.levels.astype(np.uint8).reshape(-1)
        padded = np.pad(levels, (0, levels.size % 2)).reshape(-1, 2)
        pixels = zlib.compress((padded[:, 0] << 4 | padded[:, 1]).tobytes(), level=9)
        return {
            "content": self.content,
            "shape": list(self.levels.shape),
            "pixels": base64.b64encode(pixels).decode(),
            "class_numbers": list(self.class_numbers),
            "boxes": [[_round_numbers(box) for box in boxes] for boxes in self.boxes],
        }


def pixel_levels(pictures: HostArray) -> HostArray:
    """Return pixels in [0, 1] as levels from 0 to `MAX_LEVEL`; other values are cut off."""
    return np.asarray((pictures.clip(0, 1) * MAX_LEVEL).round().astype(np.uint8))


def read_sample_pictures(log_value: Mapping[str, Any]) -> SamplePictures:
    """Return the pictures in the value of a log event.

    Raises:
        ValueError, TypeError or LookupError: the value does not contain pictures.
    """
    shape = tuple(int(side) for side in log_value["shape"])
    if len(shape) != PICTURE_AXES or min(shape) < 1 or prod(shape) > MAX_PIXELS or shape[1] not in CHANNEL_COUNTS:
        raise ValueError(f"sample_pictures: no pictures have the shape {shape}")
    content: PictureContent = CONTENTS[log_value["content"]]
    class_numbers = tuple(int(number) for number in log_value["class_numbers"])
    boxes = tuple(tuple(_read_box(*box) for box in boxes) for boxes in log_value["boxes"])
    if len(class_numbers if content == "generated" else boxes) != shape[0]:
        raise ValueError("sample_pictures: pictures lack a class or a list of boxes")
    return SamplePictures(content, _unpack_levels(log_value["pixels"], shape), class_numbers, boxes)


def _unpack_levels(pixels: str, shape: tuple[int, ...]) -> HostArray:
    """Return the levels of pictures, given their compressed text."""
    try:
        packed = zlib.decompressobj().decompress(base64.b64decode(pixels), (prod(shape) + 1) // 2)
    except zlib.error as error:
        raise ValueError(f"sample_pictures: {error}") from error
    values = np.frombuffer(packed, np.uint8)
    return np.stack([values >> 4, values & MAX_LEVEL], axis=1).reshape(-1)[: prod(shape)].reshape(shape)


def _read_box(class_number: object, score: object, *corners: object) -> PictureBox:
    left, top, right, bottom = (_to_number(corner) for corner in corners)
    return PictureBox(
        int(_to_number(class_number)), None if score is None else _to_number(score), left, top, right, bottom
    )


def _to_number(value: object) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise TypeError(f"sample_pictures: boxes should consist of numbers, not {value!r:.40}")


def _round_numbers(box: PictureBox) -> list[float | None]:
    score = None if box.score is None else round(box.score, 3)
    return [box.class_number, score, *(round(corner, 2) for corner in box[2:])]
