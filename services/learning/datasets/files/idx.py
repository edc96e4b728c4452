"""Dataset in idx files, the format of MNIST."""

from typing import Literal

from pydantic import Field

from services.learning.datasets.files.base import DataFile, FileDataset


class IdxFile(FileDataset):
    """Classification of images or vectors in idx files, the format of MNIST and its variants.

    `path` has the samples: vectors, grey images (h, w), or images (channels, h, w). Files may be compressed with gzip.
    Numbers of the type unsigned byte are pixels and are divided by 255. Y. LeCun, C. Cortes, C. J. C. Burges, "The
    MNIST database of handwritten digits", 1998.
    """

    kind: Literal["idx"] = "idx"
    labels: DataFile = Field(description="idx file with the classes of the samples of path")
    test_labels: DataFile | None = Field(None, description="idx file with the classes of the samples of test_path")
    classes: int | None = Field(None, gt=0, description="number of classes; default: the largest label plus 1")
