"""Twenty men in a fitness club: the smallest real regression."""

from typing import Literal

import numpy.typing as npt

from services.learning.datasets.base import Data, Dataset, stored
from services.learning.datasets.split import regression


class Linnerud(Dataset):
    """Chin-ups, sit-ups, jumps → weight, waist, pulse: 20 samples, all columns standardised by the training part.

    A. C. Linnerud, North Carolina State University; printed in M. Tenenhaus, "La régression PLS", Technip, 1998.
    """

    kind: Literal["linnerud"] = "linnerud"

    def load(self, dtype: npt.DTypeLike) -> Data:
        arrays = stored("linnerud")
        return regression(arrays["exercise"], arrays["physiology"], self.test_fraction, self.seed, dtype)
