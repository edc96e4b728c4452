"""Which device is taken, and what it says about it. CuPy's part is played by a stand-in where there is no GPU."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from services.runtime.device import CpuDevice, CudaDevice, Device, select_device
from services.schema.arrays import array_namespace
from services.schema.errors import HostError


@pytest.fixture
def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host on which `import cupy` fails."""
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host on which a GPU answers."""
    cupy = ModuleType("cupy")
    runtime = SimpleNamespace(getDeviceProperties=lambda _: {"name": b"Some GPU"})
    vars(cupy).update(ones=np.ones, cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)


@pytest.fixture
def with_broken_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with CuPy, on which nothing can be computed."""

    def ones(_: int) -> None:
        raise RuntimeError("cudaErrorNoDevice")

    cupy = ModuleType("cupy")
    vars(cupy).update(ones=ones)
    monkeypatch.setitem(sys.modules, "cupy", cupy)


@pytest.mark.usefixtures("without_cupy")
def test_cuda_without_a_gpu_is_an_error_that_says_how_to_get_one() -> None:
    """Whoever asks for a GPU and silently gets a CPU publishes wrong numbers."""
    with pytest.raises(HostError, match=r"install the extra `gpu`.*nvidia-smi"):
        select_device("cuda")


@pytest.mark.usefixtures("with_broken_driver")
def test_a_gpu_that_cannot_compute_does_not_count() -> None:
    """A driver may list a device that no program can use; the error is passed on."""
    with pytest.raises(HostError, match="cudaErrorNoDevice"):
        select_device("cuda")


@pytest.mark.usefixtures("without_cupy")
def test_auto_falls_back_to_the_cpu_and_says_why() -> None:
    """The reason goes into the run's record."""
    device = select_device("auto")

    assert isinstance(device, CpuDevice)
    assert "no usable GPU" in device.reason


@pytest.mark.usefixtures("with_gpu")
def test_auto_takes_a_gpu_that_answers() -> None:
    """And names it."""
    device = select_device("auto")

    assert isinstance(device, CudaDevice)
    assert device.description == "Some GPU"


@pytest.mark.usefixtures("with_gpu")
def test_cpu_is_the_cpu_even_beside_a_gpu() -> None:
    """A comparison of both needs both on one host."""
    device = select_device("cpu")

    assert isinstance(device, CpuDevice)
    assert device.description
    assert device.reason == "cpu was requested"


@pytest.mark.usefixtures("without_cupy")
def test_numpy_arrays_never_touch_cupy() -> None:
    """Hosts without CuPy run the same mathematics."""
    assert array_namespace(np.zeros(3)) is np
    assert array_namespace(np.float32(1)) is np


def test_arrays_survive_the_way_to_the_device_and_back(device: Device) -> None:
    """What is sent is what was computed."""
    x = np.arange(6, dtype="float32").reshape(2, 3)

    there = device.to_device(x)
    device.synchronize()

    assert array_namespace(there).__name__ == {"cpu": "numpy", "cuda": "cupy"}[device.name]
    assert device.to_host(there).tobytes() == x.tobytes()
    assert device.to_host(there).dtype == x.dtype
