"""Dataset in a folder of images."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.learning.datasets.files.base import FileDataset

ImageSide: TypeAlias = Annotated[int, Field(gt=0, le=4096)]


class ImageFolder(FileDataset):
    """Classification of pictures (png, jpeg, bmp, webp) in a folder with one sub-folder per class.

    Classes are numbered in the order of the names of their folders. Pixels are divided by 255. Reading it needs the
    package Pillow: pip install pillow.
    """

    kind: Literal["images"] = "images"
    size: tuple[ImageSide, ImageSide] | None = Field(
        None, description="height and width to which pictures are scaled; default: all pictures have the same size"
    )
    colour: Literal["rgb", "grey"] = Field("rgb", description="whether a picture has three channels or one")
