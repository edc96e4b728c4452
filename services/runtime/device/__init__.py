"""Compute devices: NumPy on the CPU, or CuPy on a GPU.

cpu     the processor of the host
cuda    the first visible GPU; only `cuda` imports CuPy

`select_compute_device` is the registry: it returns the device that a scenario names. `base` is the contract.
"""

from services.runtime.device.base import ComputeDevice, VectorPart
from services.runtime.device.cpu import CpuDevice
from services.runtime.device.cuda import CudaDevice, find_gpu
from services.runtime.device.gpu_memory import GpuMemoryShare
from services.runtime.device.selection import DeviceSelection, select_compute_device

__all__ = [
    "ComputeDevice",
    "CpuDevice",
    "CudaDevice",
    "DeviceSelection",
    "GpuMemoryShare",
    "VectorPart",
    "find_gpu",
    "select_compute_device",
]
