"""Map-style datasets without PyTorch, as a user has written them."""

from typing import Any

import numpy as np


class Squares:
    """Numbers and their squares; the constructor has the parameter of torchvision's datasets."""

    def __init__(self, train: bool, count: int = 50) -> None:
        self.start, self.count = (0, count) if train else (count, count // 2)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        x = np.array([self.start + number, 1.0], np.float32) / 100
        return x, x[:1] ** 2


class Parts:
    """Images with classes; a name selects the part."""

    def __init__(self, part: str, size: int = 4) -> None:
        self.rng_seed, self.size = {"fit": 1, "check": 2}[part], size

    def __len__(self) -> int:
        return 30

    def __getitem__(self, number: int) -> tuple[Any, int]:
        rng = np.random.default_rng((self.rng_seed, number))
        return rng.integers(256, size=(1, self.size, self.size), dtype=np.uint8), number % 3


def whole(count: int) -> Any:
    """Return a dataset that Ensayo splits: a list is a map-style dataset."""
    return [([float(k), k / 2], k % 2) for k in range(count)]
