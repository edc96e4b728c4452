"""Selection of the compute device of a worker."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from services.runtime.device.base import ComputeDevice
from services.runtime.device.cpu import CpuDevice, cpu_model_name
from services.runtime.device.cuda import CudaDevice, find_gpu
from services.runtime.device.gpu_memory import GpuMemoryShare
from services.schema.errors import HostError

DeviceSelection: TypeAlias = Literal["auto", "cpu", "cuda"]

WHOLE_GPU = GpuMemoryShare()


def select_compute_device(
    requested_device_kind: DeviceSelection, gpu_memory: GpuMemoryShare = WHOLE_GPU
) -> ComputeDevice:
    """Return the compute device that the user has chosen.

    `auto` chooses a usable GPU, otherwise the CPU, and records the reason.

    Args:
        requested_device_kind: choice of the user.
        gpu_memory: part of the memory that this process may use on a GPU.

    Raises:
        HostError: `cuda` is chosen and no GPU is usable, or the GPU has too little memory.
    """
    return _SELECTORS[requested_device_kind](gpu_memory)


def _select_gpu_or_cpu(gpu_memory: GpuMemoryShare) -> ComputeDevice:
    try:
        find_gpu()
    except HostError as error:
        return CpuDevice(cpu_model_name(), f"auto: {error}")
    return CudaDevice.open("auto: a GPU is usable", gpu_memory)


_SELECTORS: dict[DeviceSelection, Callable[[GpuMemoryShare], ComputeDevice]] = {
    "auto": _select_gpu_or_cpu,
    "cpu": lambda _: CpuDevice(cpu_model_name(), "cpu was requested"),
    "cuda": lambda gpu_memory: CudaDevice.open("cuda was requested", gpu_memory),
}
