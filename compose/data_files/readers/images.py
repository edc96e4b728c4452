"""Reader of a folder of pictures with one sub-folder per class."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from compose.data_files.limits import MAX_IMAGE_FILE_BYTES, MAX_IMAGE_PIXELS
from compose.data_files.optional_packages import import_optional
from compose.data_files.paths import explain_read_errors, is_folder, list_folder_files
from compose.data_files.samples import (
    FileSamples,
    check_class_count,
    check_prepared_size,
    prepare_samples,
    rows_per_chunk,
)
from services.learning.datasets.files import DataFile, DataFileError, ImageFolder
from services.learning.datasets.prepared import PreparedArrays
from services.learning.layout import Shape
from services.schema.arrays import HostArray
from services.schema.message_paths import path_for_messages

FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}  # of pictures with 8 bits per channel or less


class Picture(NamedTuple):
    """File of a picture, and the name of its class."""

    path: Path
    class_name: str


def prepare_images(dataset: ImageFolder, folder: Path) -> PreparedArrays:
    """Read and check the pictures in folders, and write the arrays of the dataset to `folder`."""
    pictures = {key: _list_pictures(key, file) for key, file in dataset.data_files()}
    class_names = sorted({picture.class_name for picture in pictures["path"]})
    check_class_count("path", path_for_messages(Path(dataset.path.file)), len(class_names))
    size = dataset.size or _first_picture_size(dataset, min(pictures["path"]).path)
    shape = (3 if dataset.colour == "rgb" else 1, *size)
    samples = {}
    for key, of_file in pictures.items():
        _check_classes(key, of_file, class_names)
        labels = np.array([class_names.index(picture.class_name) for picture in of_file], np.int64)
        check_prepared_size(key, path_for_messages(of_file[0].path.parents[1]), len(of_file) * prod(shape))
        samples[key] = FileSamples(
            shape,
            np.dtype(np.uint8),
            labels,
            partial(_read_pictures, dataset, key, of_file, shape),
        )
    test = samples.get("test_path")
    return prepare_samples(dataset, folder, samples["path"], test, class_count=len(class_names), scale="pixels")


def _list_pictures(key: str, file: DataFile) -> list[Picture]:
    """Return all files in the sub-folders of a folder, in a random order that depends only on their number.

    So neighbours in the prepared arrays are of different classes, and parts of the arrays have all classes.
    """
    root = Path(file.file)
    name = path_for_messages(root)
    if not is_folder(key, root):
        raise DataFileError(key, f"{name}: not a folder; write the path of a folder with one sub-folder per class")
    pictures = []
    for path in list_folder_files(key, root):
        parts = path.relative_to(root).parts
        if len(parts) != 2:  # noqa: PLR2004 - class and file
            message = f"{name}/{'/'.join(parts)}: pictures lie in sub-folders, one per class: {name}/CLASS/FILE"
            raise DataFileError(key, message)
        pictures.append(Picture(path, parts[0]))
    if not pictures:
        raise DataFileError(key, f"{name}: the folder has no pictures in sub-folders")
    return [pictures[number] for number in np.random.default_rng(0).permutation(len(pictures))]


def _check_classes(key: str, pictures: Sequence[Picture], class_names: Sequence[str]) -> None:
    """Raise DataFileError if there is only one class, or if test pictures have another class."""
    if len(class_names) == 1:
        message = f"all pictures are in the one folder {class_names[0]}; at least two classes are needed"
        raise DataFileError(key, message)
    for picture in pictures:
        if picture.class_name not in class_names:
            name, known = path_for_messages(picture.path.parent), ", ".join(class_names)
            message = f"{name}: no class of path; its classes are {known}"
            raise DataFileError(key, message)


def _first_picture_size(dataset: ImageFolder, path: Path) -> tuple[int, int]:
    """Return height and width of the first picture, which all pictures must have."""
    _, height, width = _read_picture(dataset, "path", path, None).shape
    return height, width


def _read_pictures(dataset: ImageFolder, key: str, pictures: Sequence[Picture], shape: Shape) -> Iterator[HostArray]:
    """Yield the pixels of the pictures in chunks."""
    size = rows_per_chunk(prod(shape))
    for start in range(0, len(pictures), size):
        chunk = pictures[start : start + size]
        yield np.stack([_read_picture(dataset, key, picture.path, shape) for picture in chunk])


def _read_picture(dataset: ImageFolder, key: str, path: Path, shape: Shape | None) -> HostArray:
    """Return the pixels of a picture, shape (channels, height, width).

    Raises:
        DataFileError: the file is no picture, damaged, too large, or has another size than `shape`.
    """
    images = import_optional(key, "PIL.Image", "pillow")
    name = path_for_messages(path)
    with explain_read_errors(key, path):
        if (file_bytes := path.stat().st_size) > MAX_IMAGE_FILE_BYTES:
            message = f"{name}: the file has {file_bytes:,} bytes; at most {MAX_IMAGE_FILE_BYTES:,} are allowed"
            raise DataFileError(key, message)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of large pictures, which are rejected below, and transparent colours
                with images.open(path, formats=FORMATS) as picture:
                    _check_picture(key, name, picture)
                    converted = picture.convert("RGB" if dataset.colour == "rgb" else "L")
        except images.DecompressionBombError as error:
            message = f"{name}: the picture has more than {MAX_IMAGE_PIXELS:,} pixels, the limit"
            raise DataFileError(key, message) from error
        except (OSError, ValueError, SyntaxError) as error:
            allowed = ", ".join(FORMATS).lower()
            message = f"{name}: the picture can't be read: {error}; allowed are {allowed}"
            raise DataFileError(key, message) from error
    if dataset.size:
        height, width = dataset.size
        converted = converted.resize((width, height), images.Resampling.BILINEAR)
    pixels = np.asarray(converted, np.uint8).reshape(converted.height, converted.width, -1).transpose(2, 0, 1)
    if shape is not None and pixels.shape != shape:
        message = (
            f"{name}: the picture has {pixels.shape[1]} x {pixels.shape[2]} pixels, the first picture {shape[1]} x "
            f"{shape[2]}; declare size to scale all pictures"
        )
        raise DataFileError(key, message)
    return pixels


def _check_picture(key: str, name: str, picture: Any) -> None:
    """Raise DataFileError if a picture has too many pixels or more than 8 bits per channel; it is not decoded yet."""
    if (pixel_count := picture.width * picture.height) > MAX_IMAGE_PIXELS:
        message = (
            f"{name}: {picture.width:,} x {picture.height:,} are {pixel_count:,} pixels; at most {MAX_IMAGE_PIXELS:,} "
            "are allowed"
        )
        raise DataFileError(key, message)
    if picture.mode not in MODES:
        raise DataFileError(key, f"{name}: pictures of mode {picture.mode} are not supported; convert it to 8 bits")
