"""Base class of datasets: samples and targets, split into training and test data."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from services.learning.datasets.sample_rows import SampleRows
from services.learning.layout import Shape
from services.learning.objectives import LossName
from services.schema.arrays import HostArray
from services.schema.component import FrozenRecord, ScenarioComponent


class LearningTask(FrozenRecord):
    """Task that a model must learn, such as the classification of images.

    It consists of the shape of a sample, the number of outputs, and the loss between outputs and targets.
    """

    inputs: Shape  # of one sample; images are (channels, height, width), sequences of tokens (length,)
    outputs: int = Field(
        gt=0
    )  # number of classes (also of detection and denoising), of values, or of tokens in the vocabulary
    loss: LossName  # names the objective


@dataclass(frozen=True)
class TrainTestData:
    """Training and test data of a learning task: samples and targets.

    Samples have the shape (n, *inputs); tokens are int64. Targets are labels (n,) as int64 for classification and
    denoising, values (n, outputs) for regression, tokens (n, *inputs) as int64 for the prediction of tokens, and rows
    (class, left, top, right, bottom) for detection, shape (n, rows, 5); unused rows have the class -1.
    They are arrays in host memory, or read from a file when samples are selected.
    """

    train_x: SampleRows
    train_y: SampleRows
    test_x: SampleRows
    test_y: SampleRows
    task: LearningTask


class DatasetDescription(NamedTuple):
    """The learning task of a dataset, and the numbers of its samples."""

    task: LearningTask
    train_samples: int
    test_samples: int


class DataSource(ScenarioComponent):
    """Source of training and test samples.

    Every node that loads the samples gets the same ones.
    """

    @abstractmethod
    def load(self, dtype: npt.DTypeLike) -> TrainTestData:
        """Return training and test data with floating-point arrays of the type `dtype`.

        The result is a pure function of the fields of the source and of `dtype`.
        """

    def describe(self) -> DatasetDescription:
        """Return the learning task and the numbers of samples; by default, load the samples."""
        data = self.load("float32")
        return DatasetDescription(data.task, len(data.train_x), len(data.test_x))

    def as_nodes_load_it(self) -> "DataSource":
        """Return the source from which nodes load the samples; by default, this one."""
        return self

    @property
    def folder_on_nodes(self) -> Path | None:
        """Folder of the host that nodes need to load the samples; None if they need none."""
        return None

    @property
    def code_folder(self) -> Path | None:
        """Copy of the user's code that has created the samples, named by its digest; None if there is no such code."""
        return None

    @property
    def declared_kind(self) -> str:
        """Kind of the dataset that the scenario declares."""
        return self.kind


class Dataset(DataSource):
    """Dataset that a scenario declares; it is split into training and test samples.

    `objective_losses` has the values of the key `objective`, each with its loss. It is empty if a dataset has no such
    key.
    """

    objective_losses: ClassVar[Mapping[str, LossName]] = {}

    test_fraction: float = Field(default=0.2, gt=0, lt=1, description="share of the samples that are used for testing")
    seed: int = Field(default=0, ge=0, description="seed of the split, and of generated samples")


def read_stored_arrays(dataset_name: str) -> dict[str, HostArray]:
    """Return the arrays of a dataset from its stored file, by name.

    The file is `<dataset_name>.npz` in the folder services/learning/datasets/stored.
    """
    with np.load(Path(__file__).parent / "stored" / f"{dataset_name}.npz", allow_pickle=False) as file:
        return dict(file)
