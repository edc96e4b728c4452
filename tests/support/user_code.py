"""References to the models in `own_models`, as a loaded scenario has them."""

from pathlib import Path
from typing import Any

from compose.own_code.files import digest_code, read_code_files
from services.learning.models import PythonModel, TorchModel

OWN_MODELS = Path(__file__).with_name("own_models")


def reference_to(file_name: str, name: str) -> dict[str, str]:
    """Return the reference to a class; nodes of the test import it from the folder of the tests."""
    digest = digest_code(read_code_files("module", OWN_MODELS))
    return {"file": str(OWN_MODELS / file_name), "name": name, "sha256": digest, "folder": str(OWN_MODELS)}


def perceptron(**arguments: Any) -> PythonModel:
    """Return the model that consists of the user's class `Perceptron`."""
    return PythonModel.model_validate({"module": reference_to("perceptron.py", "Perceptron"), "arguments": arguments})


def torch_net(name: str, **keys: Any) -> TorchModel:
    """Return the model that consists of a user's module of PyTorch; `loss` may be the name of a function beside it."""
    if "loss" in keys:
        keys["loss"] = reference_to("torch_nets.py", keys["loss"])
    return TorchModel.model_validate({"module": reference_to("torch_nets.py", name)} | keys)
