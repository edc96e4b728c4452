"""Compute devices: NumPy on the CPU or CuPy on a GPU.

Only this module imports CuPy.
"""

import platform
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from services.schema.arrays import Array, HostArray
from services.schema.errors import HostError

DeviceSelection: TypeAlias = Literal["auto", "cpu", "cuda"]

GPU_INSTALL_HINT = "install the extra `gpu` (pip install 'ensayo[gpu]') on a host where nvidia-smi lists a GPU"


@dataclass(frozen=True)
class ComputeDevice(ABC):
    """Base class of compute devices, which store arrays and compute with them.

    A device determines where arrays are stored, and which library computes with them.
    """

    name: ClassVar[str]  # "cpu" or "cuda"
    description: str  # model of the processor
    reason: str  # why this device was selected

    @abstractmethod
    def to_device(self, array: Array) -> Array:
        """Return `array` in the memory of this device, without a copy if it is already there."""

    @abstractmethod
    def to_host(self, array: Array) -> HostArray:
        """Return `array` in host memory, without a copy if it is already there."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the compute device has finished all submitted work.

        A clock that is read afterwards includes the work.
        """


@dataclass(frozen=True)
class CpuDevice(ComputeDevice):
    """Compute device that is the host's processor, used through NumPy."""

    name: ClassVar[str] = "cpu"

    def to_device(self, array: Array) -> HostArray:
        return np.asarray(array)

    def to_host(self, array: Array) -> HostArray:
        return np.asarray(array)

    def synchronize(self) -> None:
        """Return at once: NumPy calls return when their work is done."""


@dataclass(frozen=True)
class CudaDevice(ComputeDevice):
    """Compute device that is the first visible GPU, used through CuPy."""

    name: ClassVar[str] = "cuda"

    def to_device(self, array: Array) -> Array:
        return _import_cupy().asarray(array)

    def to_host(self, array: Array) -> HostArray:
        return np.asarray(_import_cupy().asnumpy(array))

    def synchronize(self) -> None:
        _import_cupy().cuda.get_current_stream().synchronize()


def select_compute_device(requested_device_kind: DeviceSelection) -> ComputeDevice:
    """Return the compute device that the user has chosen.

    `auto` chooses a usable GPU, otherwise the CPU, and records the reason.

    Raises:
        HostError: `cuda` is chosen and no GPU is usable.
    """
    return _SELECTORS[requested_device_kind]()


def _select_gpu_or_cpu() -> ComputeDevice:
    try:
        return CudaDevice(_working_gpu_name(), "auto: a GPU is usable")
    except HostError as error:
        return CpuDevice(_cpu_model_name(), f"auto: {error}")


_SELECTORS: dict[DeviceSelection, Callable[[], ComputeDevice]] = {
    "auto": _select_gpu_or_cpu,
    "cpu": lambda: CpuDevice(_cpu_model_name(), "cpu was requested"),
    "cuda": lambda: CudaDevice(_working_gpu_name(), "cuda was requested"),
}


def _working_gpu_name() -> str:
    """Run a test computation on the first GPU, and return the name of the GPU's model.

    A driver without a toolkit lists GPUs, and only a computation fails.

    Raises:
        HostError: CuPy is missing or can't compute on a GPU.
    """
    try:
        cupy = _import_cupy()
        float((cupy.ones(1) + 1).sum())
        return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    except (ImportError, OSError, RuntimeError) as error:
        raise HostError(f"no usable GPU: CuPy failed with {error!r}; {GPU_INSTALL_HINT}") from error


def _cpu_model_name() -> str:
    """Return the model name of the host's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _import_cupy() -> Any:
    import cupy  # noqa: PLC0415 - only hosts with a GPU have it

    return cupy
