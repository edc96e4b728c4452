"""Compute devices: NumPy on the CPU or CuPy on a GPU. Only this module imports CuPy."""

import platform
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from services.schema.arrays import Array, HostArray
from services.schema.errors import HostError

Want: TypeAlias = Literal["auto", "cpu", "cuda"]

HOW_TO_GET_A_GPU = "install the extra `gpu` (pip install 'ensayo[gpu]') on a host where nvidia-smi lists a GPU"


@dataclass(frozen=True)
class Device(ABC):
    """Where arrays live and who computes with them."""

    name: ClassVar[str]  # "cpu" or "cuda"
    description: str  # model of the processor
    reason: str  # why this device was taken and not the other

    @abstractmethod
    def to_device(self, x: Array) -> Array:
        """`x` in this device's memory; `x` itself if it is already there."""

    @abstractmethod
    def to_host(self, x: Array) -> HostArray:
        """`x` in the host's memory; `x` itself if it is already there."""

    @abstractmethod
    def synchronize(self) -> None:
        """Return when all work handed to the device is done; before this, a clock measures only the handing over."""


@dataclass(frozen=True)
class Cpu(Device):
    """NumPy on the host's processor."""

    name: ClassVar[str] = "cpu"

    def to_device(self, x: Array) -> HostArray:
        return np.asarray(x)

    def to_host(self, x: Array) -> HostArray:
        return np.asarray(x)

    def synchronize(self) -> None:
        """Nothing to wait for: NumPy returns when it is done."""


@dataclass(frozen=True)
class Cuda(Device):
    """CuPy on the first GPU that this process sees."""

    name: ClassVar[str] = "cuda"

    def to_device(self, x: Array) -> Array:
        return _cupy().asarray(x)

    def to_host(self, x: Array) -> HostArray:
        return np.asarray(_cupy().asnumpy(x))

    def synchronize(self) -> None:
        _cupy().cuda.get_current_stream().synchronize()


def select(want: Want) -> Device:
    """The device wanted; `auto` takes a GPU if one answers and says in `reason` what it found.

    Raises:
        HostError: `cuda` is wanted and no GPU answers.
    """
    return _SELECT[want]()


def _select_auto() -> Device:
    try:
        return Cuda(_answering_gpu(), "auto: a GPU answered")
    except HostError as absent:
        return Cpu(_processor(), f"auto: {absent}")


_SELECT: dict[Want, Callable[[], Device]] = {
    "auto": _select_auto,
    "cpu": lambda: Cpu(_processor(), "cpu was asked for"),
    "cuda": lambda: Cuda(_answering_gpu(), "cuda was asked for"),
}


def _answering_gpu() -> str:
    """Model of the first GPU, once it has computed something: a driver without a toolkit lists GPUs and fails later."""
    try:
        cupy = _cupy()
        float((cupy.ones(1) + 1).sum())
        return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    except (ImportError, OSError, RuntimeError) as error:
        raise HostError(f"no GPU answers through CuPy ({error}); {HOW_TO_GET_A_GPU}") from error


def _processor() -> str:
    """Model of the host's processor, as Linux names it, else as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _cupy() -> Any:
    import cupy  # noqa: PLC0415 - only hosts with a GPU have it

    return cupy
