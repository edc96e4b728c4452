"""Compute device that is a GPU, used through CuPy."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from services.runtime.device.base import ComputeDevice, VectorPart
from services.runtime.device.gpu_memory import GpuMemoryShare
from services.schema.arrays import Array, HostArray, Vector
from services.schema.errors import HostError

CUPY_INSTALL_HINT = "install CuPy (pip install 'cupy-cuda12x[ctk]>=14.0') on a host where nvidia-smi lists a GPU"
DRIVER_INSTALL_HINT = (
    "install a driver for CUDA 12 or newer, with which nvidia-smi lists a GPU, and the NVIDIA container toolkit for "
    "containers"
)


class Gpu(NamedTuple):
    """Properties of a GPU on which CuPy can compute."""

    model: str
    memory_bytes: int
    cupy_version: str


@dataclass(frozen=True)
class CudaDevice(ComputeDevice):
    """Compute device that is the first visible GPU, used through CuPy.

    Copies from the GPU go to pinned memory of the host, to which the GPU copies directly. CuPy does the same in the
    other direction.
    """

    name: ClassVar[str] = "cuda"
    has_own_memory: ClassVar[bool] = True
    pool_limit_bytes: int  # of CuPy's memory pool, which holds all arrays of this process
    copy_stream: Any  # stream of CUDA for copies during a backward pass; other work is in the default stream

    @classmethod
    def open(cls, reason: str, memory_share: GpuMemoryShare) -> Self:
        """Return the first visible GPU, with limited memory for this process.

        Raises:
            HostError: there is no usable GPU, or it has too little memory.
        """
        gpu = find_gpu()
        cupy, limit_bytes = _import_cupy(), memory_share.limit_bytes(gpu.memory_bytes)
        cupy.get_default_memory_pool().set_limit(size=limit_bytes)
        return cls(gpu.model, reason, limit_bytes, cupy.cuda.Stream(non_blocking=True))

    @property
    def memory_limit_bytes(self) -> int:
        return self.pool_limit_bytes

    def to_device(self, array: Array) -> Array:
        return _import_cupy().asarray(array, blocking=True)  # the caller may change `array` afterwards

    def to_host(self, array: Array) -> HostArray:
        if isinstance(array, np.ndarray):
            return array
        host_array = _empty_pinned_array(array.shape, array.dtype)
        array.get(out=host_array)
        return host_array

    def synchronize(self) -> None:
        _import_cupy().cuda.get_current_stream().synchronize()

    def write_parts_and_copy_to_host(self, vector: Vector, parts: Iterable[VectorPart]) -> HostArray:
        """Write parts into `vector`, and copy each part to the host while the GPU computes the next one.

        The copies are in a stream of their own, and begin when the default stream has written the part.
        """
        compute_stream = _import_cupy().cuda.get_current_stream()
        host_vector = _empty_pinned_array(vector.shape, vector.dtype)
        for part in parts:
            written_range = slice(part.start, part.start + len(part.values))
            vector[written_range] = part.values
            self.copy_stream.wait_event(compute_stream.record())
            vector[written_range].get(stream=self.copy_stream, out=host_vector[written_range], blocking=False)
        self.copy_stream.synchronize()
        return host_vector

    def explain_memory_error(self, error: BaseException) -> str:
        if not isinstance(error, _import_cupy().cuda.memory.OutOfMemoryError):
            return super().explain_memory_error(error)
        return (
            f"a worker has used up its GPU memory ({error}); declare a larger cluster.worker.gpu_memory, or reduce the "
            "batch, the model or the number of workers on the GPU"
        )


def find_gpu() -> Gpu:
    """Run a test computation on the first visible GPU, and return its properties.

    A driver without a toolkit lists GPUs, and only a computation fails.

    Raises:
        HostError: CuPy is missing or can't compute on a GPU.
    """
    try:
        cupy = _import_cupy()
        float((cupy.ones(1) + 1).sum())
        runtime = cupy.cuda.runtime
        _, memory_bytes = runtime.memGetInfo()
        return Gpu(runtime.getDeviceProperties(0)["name"].decode(), memory_bytes, cupy.__version__)
    except ImportError as error:
        raise HostError(f"no usable GPU: CuPy failed with {error!r}; {CUPY_INSTALL_HINT}") from error
    except (MemoryError, OSError, RuntimeError) as error:
        raise HostError(f"no usable GPU: CuPy failed with {error!r}; {DRIVER_INSTALL_HINT}") from error


def _empty_pinned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
    """Return a new array in pinned memory of the host, from CuPy's pool of such memory."""
    entries = prod(shape)
    if not entries:
        return np.empty(shape, dtype)
    memory = _import_cupy().cuda.alloc_pinned_memory(entries * dtype.itemsize)
    return np.frombuffer(memory, dtype, entries).reshape(shape)


def _import_cupy() -> Any:
    import cupy  # noqa: PLC0415 - only hosts with a GPU have it

    return cupy
