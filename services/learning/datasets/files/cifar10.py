"""Dataset in the binary format of CIFAR-10."""

from typing import Literal

from services.learning.datasets.files.base import FileDataset


class Cifar10File(FileDataset):
    """Classification of 32x32 colour images in the binary format of CIFAR-10.

    `path` is a file, or a folder whose files `data_batch_*.bin` have the training samples and `test_batch.bin` the test
    samples. Pixels are divided by 255. A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """

    kind: Literal["cifar10"] = "cifar10"
