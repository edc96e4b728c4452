"""What is a dataset? Samples and targets in the host's memory, split once, and the task that they pose."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.layout import Shape
from services.schema.arrays import HostArray
from services.schema.component import Component, Record


class Task(Record):
    """What a model must fit: its inputs, its outputs, and the loss between outputs and targets."""

    inputs: Shape  # of one sample; images are (channels, height, width)
    outputs: int = Field(gt=0)  # classes, or numbers to predict
    loss: Literal["cross_entropy", "mse"]


@dataclass(frozen=True)
class Data:
    """Samples (n, *inputs) and targets: labels (n,) as int64 for classes, (n, outputs) for regression."""

    train_x: HostArray
    train_y: HostArray
    test_x: HostArray
    test_y: HostArray
    task: Task


class Dataset(Component):
    """Where samples come from. The split is part of the dataset: every node that loads it has the same."""

    test_fraction: float = Field(default=0.2, gt=0, lt=1)  # share of the samples kept for testing
    seed: int = Field(default=0, ge=0)  # of the split, and of what is generated

    @abstractmethod
    def load(self, dtype: npt.DTypeLike) -> Data:
        """The data, floating-point arrays in `dtype`; a pure function of the fields."""


def stored(name: str) -> dict[str, HostArray]:
    """The arrays of `<name>.npz` beside this file."""
    with np.load(Path(__file__).with_name(f"{name}.npz")) as file:
        return dict(file)
