"""Dataset of PyTorch that a class of the user creates."""

from typing import Literal

from pydantic import Field, JsonValue

from services.learning.datasets.own.base import OwnDataset


class TorchDataset(OwnDataset):
    """Map-style dataset of the user (`torch.utils.data.Dataset`): `len(dataset)`, and `dataset[k]` returns (x, y).

    The class, or a function that returns a dataset, is called twice: with `train_arguments` for the training samples,
    and with `test_arguments` for the test samples. If neither is declared, it gets `train=True` and `train=False` if it
    has a parameter of this name, as the datasets of torchvision. Otherwise it is called once, and the test samples are
    a part of the samples, as `test_fraction` and `seed` state.
    """

    kind: Literal["torch"] = "torch"
    train_arguments: dict[str, JsonValue] | None = Field(
        None,
        description="further arguments for the training samples; default: train: true if the class has this parameter",
    )
    test_arguments: dict[str, JsonValue] | None = Field(
        None,
        description="further arguments for the test samples; default: train: false if the class has this parameter",
    )

    __hash__ = OwnDataset.__hash__
