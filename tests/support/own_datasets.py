"""The examples of datasets in code of users, with the samples that they create."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWN_DATA = Path(__file__).with_name("own_data")


@dataclass(frozen=True)
class OwnDataExample:
    """Keys of a dataset with its learning task and its numbers of samples."""

    keys: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: int
    loss: str
    train_samples: int
    test_samples: int
    model: str = "linear"


OWN_DATA_EXAMPLES = {
    "classes": OwnDataExample(
        {"kind": "python", "module": "functions.py:load_classes", "arguments": {"classes": 4}},
        *((4,), 4, "cross_entropy", 30, 30),
    ),
    "values": OwnDataExample(
        {"kind": "python", "module": "functions.py:load_values", "test_fraction": 0.25}, (3,), 1, "mse", 45, 15
    ),
    "labels as values": OwnDataExample(
        {"kind": "python", "module": "functions.py:load_classes", "objective": "regression"}, (4,), 1, "mse", 30, 30
    ),
    "tokens": OwnDataExample(
        {"kind": "python", "module": "functions.py:load_tokens", "objective": "next_token", "classes": 8},
        *((6,), 8, "next_token", 30, 10, "gpt_mini"),
    ),
    "train parameter": OwnDataExample({"kind": "torch", "module": "items.py:Squares"}, (2,), 1, "mse", 50, 25),
    "train and test arguments": OwnDataExample(
        {
            "kind": "torch",
            "module": "items.py:Parts",
            "arguments": {"size": 3},
            "train_arguments": {"part": "fit"},
            "test_arguments": {"part": "check"},
        },
        *((1, 3, 3), 3, "cross_entropy", 30, 30),
    ),
    "split": OwnDataExample(
        {"kind": "torch", "module": "items.py:whole", "arguments": {"count": 20}}, (2,), 2, "cross_entropy", 16, 4
    ),
}
