"""Datasets that code of the user creates. The host runs the code; nodes read arrays that it has prepared.

base              fields and code that all kinds share
python_dataset    function that returns arrays of NumPy
torch_dataset     map-style dataset of PyTorch

`AnyOwnDataset` is the registry: each member of this union can be named in a scenario by its `kind`. The host's part is
in `compose/own_code/dataset_*.py`.
"""

from typing import TypeAlias

from services.learning.datasets.own.base import OwnDataset
from services.learning.datasets.own.python_dataset import PythonDataset
from services.learning.datasets.own.torch_dataset import TorchDataset

AnyOwnDataset: TypeAlias = PythonDataset | TorchDataset

__all__ = ["AnyOwnDataset", "OwnDataset", "PythonDataset", "TorchDataset"]
