"""Datasets that a scenario can name.

digits                  classification of images, 1,797 samples (1, 8, 8), real
linnerud                regression of three numbers from three, 20 samples, real
diabetes                regression of one number from ten, 442 samples, real
synthetic_regression    regression of any size, generated
scenes                  detection of shapes in images (3, 32, 32), generated
grammar                 prediction of tokens of an artificial language, generated
idx, cifar10, npz, csv, parquet, text, images    data in files of the user, see `files`
python, torch           data that code of the user creates, see `own`

`AnyDataset` is the registry: each member of this union can be named in a scenario by its `kind`.
The real datasets are small files in the folder `stored`; its `README.md` states their sources.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.learning.datasets.base import Dataset, DatasetDescription, DataSource, LearningTask, TrainTestData
from services.learning.datasets.diabetes import Diabetes
from services.learning.datasets.digits import Digits
from services.learning.datasets.files import AnyFileDataset
from services.learning.datasets.language.grammar import Grammar
from services.learning.datasets.linnerud import Linnerud
from services.learning.datasets.own import AnyOwnDataset
from services.learning.datasets.prepared import PreparedDataset
from services.learning.datasets.scenes import Scenes
from services.learning.datasets.synthetic_regression import SyntheticRegression

AnyDataset: TypeAlias = Annotated[
    Digits | Linnerud | Diabetes | SyntheticRegression | Scenes | Grammar | AnyFileDataset | AnyOwnDataset,
    Field(discriminator="kind"),
]
# Datasets that nodes load: in place of a file, a plan has the samples that the host has prepared from it.
AnyPlannedDataset: TypeAlias = Annotated[
    Digits | Linnerud | Diabetes | SyntheticRegression | Scenes | Grammar | PreparedDataset, Field(discriminator="kind")
]

__all__ = [
    "AnyDataset",
    "AnyPlannedDataset",
    "DataSource",
    "Dataset",
    "DatasetDescription",
    "Diabetes",
    "Digits",
    "Grammar",
    "LearningTask",
    "Linnerud",
    "PreparedDataset",
    "Scenes",
    "SyntheticRegression",
    "TrainTestData",
]
