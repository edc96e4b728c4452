"""Datasets that a scenario can name.

digits                  classification of images, 1,797 samples (1, 8, 8), real
linnerud                regression of three numbers from three, 20 samples, real
diabetes                regression of one number from ten, 442 samples, real
synthetic_regression    regression of any size, generated
scenes                  detection of shapes in images (3, 32, 32), generated
grammar                 prediction of tokens of an artificial language, generated

`AnyDataset` is the registry: each member of this union can be named in a scenario by its `kind`.
The real datasets are small files in this folder; `README.md` states their sources.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.learning.datasets.base import Dataset, LearningTask, TrainTestData
from services.learning.datasets.diabetes import Diabetes
from services.learning.datasets.digits import Digits
from services.learning.datasets.grammar import Grammar
from services.learning.datasets.linnerud import Linnerud
from services.learning.datasets.scenes import Scenes
from services.learning.datasets.synthetic_regression import SyntheticRegression

AnyDataset: TypeAlias = Annotated[
    Digits | Linnerud | Diabetes | SyntheticRegression | Scenes | Grammar, Field(discriminator="kind")
]

__all__ = [
    "AnyDataset",
    "Dataset",
    "Diabetes",
    "Digits",
    "Grammar",
    "LearningTask",
    "Linnerud",
    "Scenes",
    "SyntheticRegression",
    "TrainTestData",
]
