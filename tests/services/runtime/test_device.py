"""Selection and description of the compute device. A stub replaces CuPy, so that no GPU is needed."""

import sys
from types import ModuleType

import numpy as np
import pytest
from fake_cupy import make_fake_cupy

from services.runtime.device import ComputeDevice, CpuDevice, CudaDevice, select_compute_device
from services.schema.arrays import array_namespace
from services.schema.errors import HostError


@pytest.fixture
def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host on which `import cupy` fails."""
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with a usable GPU."""
    make_fake_cupy().install(monkeypatch)


@pytest.fixture
def with_broken_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with CuPy whose driver raises an error at the first computation."""

    def ones(_: int) -> None:
        raise RuntimeError("cudaErrorNoDevice")

    cupy = ModuleType("cupy")
    vars(cupy).update(ones=ones)
    monkeypatch.setitem(sys.modules, "cupy", cupy)


@pytest.mark.usefixtures("without_cupy")
def test_cuda_without_a_gpu_raises_an_error_with_instructions() -> None:
    """A user who asks for a GPU and silently gets a CPU would publish wrong numbers."""
    with pytest.raises(HostError, match=r"install CuPy .*nvidia-smi"):
        select_compute_device("cuda")


@pytest.mark.usefixtures("with_broken_driver")
def test_a_gpu_that_cannot_compute_is_not_selected() -> None:
    """A driver may list a device that no program can use; the error is passed on."""
    with pytest.raises(HostError, match=r"cudaErrorNoDevice.*; install a driver"):
        select_compute_device("cuda")


@pytest.mark.usefixtures("without_cupy")
def test_auto_falls_back_to_the_cpu_and_gives_the_reason() -> None:
    """The record of a run contains the reason."""
    device = select_compute_device("auto")

    assert isinstance(device, CpuDevice)
    assert "no usable GPU" in device.reason


@pytest.mark.usefixtures("with_gpu")
def test_auto_selects_a_usable_gpu() -> None:
    """The description names the GPU."""
    device = select_compute_device("auto")

    assert isinstance(device, CudaDevice)
    assert device.description == "Some GPU"


@pytest.mark.usefixtures("with_gpu")
def test_cpu_selects_the_cpu_even_if_the_host_has_a_gpu() -> None:
    """A comparison of CPU and GPU on one host needs both."""
    device = select_compute_device("cpu")

    assert isinstance(device, CpuDevice)
    assert device.description
    assert device.reason == "cpu was requested"


@pytest.mark.usefixtures("without_cupy")
def test_numpy_arrays_never_import_cupy() -> None:
    """Hosts without CuPy run the same code."""
    assert array_namespace(np.zeros(3)) is np
    assert array_namespace(np.float32(1)) is np


def test_arrays_are_unchanged_after_a_copy_to_the_device_and_back(device: ComputeDevice) -> None:
    """Messages must contain exactly the computed values."""
    x = np.arange(6, dtype="float32").reshape(2, 3)

    on_device = device.to_device(x)
    device.synchronize()

    assert (
        array_namespace(on_device).__name__
        == {"cpu": "numpy", "cuda": "cupy", "guarded": "guarded_arrays"}[device.name]
    )
    assert device.to_host(on_device).tobytes() == x.tobytes()
    assert device.to_host(on_device).dtype == x.dtype
