"""What is learned from?

digits                  classes from pictures, 1,797 samples (1, 8, 8), real
linnerud                three numbers from three, 20 samples, real
diabetes                one number from ten, 442 samples, real
synthetic_regression    numbers from numbers, any size, generated

`AnyDataset` is the registry: a member of this union can stand in a scenario under its `kind`.
The real ones are small files in this folder; `README.md` says where they come from.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.learning.datasets.base import Data, Dataset, Task
from services.learning.datasets.diabetes import Diabetes
from services.learning.datasets.digits import Digits
from services.learning.datasets.linnerud import Linnerud
from services.learning.datasets.synthetic_regression import SyntheticRegression

AnyDataset: TypeAlias = Annotated[
    Digits | Linnerud | Diabetes | SyntheticRegression,
    Field(discriminator="kind"),
]

__all__ = [
    "AnyDataset",
    "Data",
    "Dataset",
    "Diabetes",
    "Digits",
    "Linnerud",
    "SyntheticRegression",
    "Task",
]
