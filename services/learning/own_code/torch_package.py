"""PyTorch, which only models of users need: its import, and its place on the host."""

import os
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from services.learning.own_code.error_text import OwnCodeError
from services.schema.component import FrozenRecord

THREADS_VARIABLE = "OMP_NUM_THREADS"


class MissingTorchError(OwnCodeError):
    """Error for a model of the user that needs PyTorch, on a host without PyTorch."""

    def __init__(self) -> None:
        super().__init__(
            ("kind",),
            f"this model needs PyTorch, which is not installed for {sys.executable}; install it with: "
            f"{sys.executable} -m pip install 'torch>=2.4'",
        )


class TorchInstallation(FrozenRecord):
    """PyTorch as it is installed on the host; containers import it from the host's folder."""

    version: str
    folder: str  # absolute path of the folder that contains the package, and those that it requires


def find_torch() -> TorchInstallation:
    """Return the installation of PyTorch on this host, without importing it.

    Raises:
        MissingTorchError: PyTorch is not installed.
    """
    try:
        spec, torch_version = find_spec("torch"), version("torch")
    except (PackageNotFoundError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise MissingTorchError
    return TorchInstallation(version=torch_version, folder=str(Path(spec.origin).resolve().parents[1]))


@cache
def import_torch(installation: TorchInstallation | None = None) -> Any:
    """Return the module `torch`.

    It computes on one thread, unless the environment variable OMP_NUM_THREADS states another number: several threads
    would take cores from other nodes, and change the order of sums.

    Args:
        installation: of the host; a node without PyTorch imports it from there. The folder is appended to the end of
            `sys.path`, so packages of the node take precedence.

    Raises:
        MissingTorchError: PyTorch is not installed.
    """
    if find_spec("torch") is None:
        if installation is None or not Path(installation.folder).is_dir():
            raise MissingTorchError
        sys.path.append(installation.folder)
    import torch  # noqa: PLC0415 - takes a second, and only models of users need it

    if THREADS_VARIABLE not in os.environ:
        torch.set_num_threads(1)
    return torch
