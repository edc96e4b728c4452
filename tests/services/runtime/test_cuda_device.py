"""The device `cuda` with a stand-in for CuPy: memory limits, pinned copies and the order of calls, without a GPU."""

import asyncio
from typing import Any

import numpy as np
import pytest
from fake_cupy import GPU_BYTES, FakeCupy, OutOfMemoryError, make_fake_cupy
from guarded_arrays import GuardedDevice
from simulated_trial import SimulatedTrial

from services.learning.models import Mlp
from services.runtime.device import CudaDevice, GpuMemoryShare, VectorPart, select_compute_device, selection
from services.schema.errors import HostError, first_error_in_group
from services.strategies import AllReduce, Easgd, LocalSgd, ParameterServer, SingleWorker, Strategy

GIB = 1 << 30


@pytest.fixture
def fake_cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """A host with CuPy and a GPU of 16 GiB."""
    fake = make_fake_cupy()
    fake.install(monkeypatch)
    return fake


def test_array_is_copied_to_pinned_memory_of_the_host(fake_cupy: FakeCupy) -> None:
    """The GPU copies to pinned memory directly; other memory costs a second copy on the host."""
    device = select_compute_device("cuda")
    x = np.arange(6, dtype="float32").reshape(2, 3)

    on_host = device.to_host(device.to_device(x))

    assert on_host.tobytes() == x.tobytes()
    assert (on_host.shape, on_host.dtype) == (x.shape, x.dtype)
    assert fake_cupy.pinned_bytes == [x.nbytes]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_arrays_with_one_entry_or_none_are_copied(fake_cupy: FakeCupy, shape: tuple[int, ...]) -> None:
    """A share of a batch may be empty, and a loss has no axes."""
    device = select_compute_device("cuda")
    x = np.ones(shape)

    on_host = device.to_host(device.to_device(x))

    assert (on_host.shape, on_host.tolist()) == (shape, x.tolist())


def test_array_of_the_host_is_not_copied(fake_cupy: FakeCupy) -> None:
    """Strategies ask for the host's copy without knowing where an array is."""
    x = np.ones(3)

    assert select_compute_device("cuda").to_host(x) is x


def test_parts_are_copied_while_the_next_part_is_computed(fake_cupy: FakeCupy) -> None:
    """Each copy waits for its own part only, and the host waits once, after the last part."""
    device = select_compute_device("cuda")
    vector, copies_before_part = device.to_device(np.zeros(6)), []

    def parts() -> Any:
        for start in (4, 1, 0):  # the order of a backward pass
            copies_before_part.append(copy_stream.calls.count("copy"))
            stop = {4: 6, 1: 4, 0: 1}[start]
            yield VectorPart(start, device.to_device(np.arange(start, stop, dtype="float64")))

    (copy_stream,) = fake_cupy.streams
    on_host = device.write_parts_and_copy_to_host(vector, parts())

    assert on_host.tolist() == device.to_host(vector).tolist() == [0, 1, 2, 3, 4, 5]
    assert copies_before_part == [0, 1, 2]
    assert copy_stream.calls == ["wait", "copy"] * 3 + ["synchronize"]
    assert copy_stream.non_blocking  # other streams wait for the default stream, so nothing would overlap


@pytest.mark.parametrize(
    ("share", "limit_gib"),
    [
        (GpuMemoryShare(), 15.5),
        (GpuMemoryShare(workers=4), 3.5),
        (GpuMemoryShare(declared_bytes=6 * GIB, workers=4), 6),
    ],
)
def test_pool_of_a_worker_is_limited(fake_cupy: FakeCupy, share: GpuMemoryShare, limit_gib: float) -> None:
    """Without a limit, the pool of one worker would keep the memory that the others need."""
    device = select_compute_device("cuda", share)

    assert fake_cupy.pool_limit_bytes == device.memory_limit_bytes == limit_gib * GIB


@pytest.mark.parametrize("kind", ["auto", "cuda"])
@pytest.mark.parametrize(
    ("share", "message"),
    [
        (GpuMemoryShare(declared_bytes=GPU_BYTES), r"gpu_memory: 16 GiB is too much.*3.5 GiB is an equal share"),
        (GpuMemoryShare(workers=32), r"the GPU has 16 GiB, too little for 32 workers.*device: cpu"),
    ],
)
def test_too_little_memory_is_an_error_with_a_remedy(
    fake_cupy: FakeCupy, kind: Any, share: GpuMemoryShare, message: str
) -> None:
    """With `auto`, too: a worker that silently computes on the CPU has another speed than the others."""
    if share.declared_bytes:
        share = share.model_copy(update={"workers": 4})
    with pytest.raises(HostError, match=message):
        select_compute_device(kind, share)


STRATEGIES = [SingleWorker(), AllReduce(), ParameterServer(servers=2), LocalSgd(period=2), Easgd(period=2)]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.kind)
def test_trial_with_the_calls_of_the_device_cuda_gives_the_bits_of_the_cpu(
    fake_cupy: FakeCupy, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is used before it has ended holds no gradient yet."""
    workers = 1 if strategy == SingleWorker() else 3
    monkeypatch.setitem(selection._SELECTORS, "auto", selection._SELECTORS["cpu"])
    on_cpu = SimulatedTrial.of(strategy, 4, workers, 6)

    monkeypatch.setitem(selection._SELECTORS, "auto", selection._SELECTORS["cuda"])
    on_gpu = SimulatedTrial.of(strategy, 4, workers, 6)

    assert [on_gpu.device_of(name) for name in on_gpu.workers] == [CudaDevice.name] * workers
    assert on_gpu.params_sha256 == on_cpu.params_sha256


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OutOfMemoryError("Out of memory allocating 9 bytes"),
            r"GPU memory \(Out of memory allocating 9 bytes\).*gpu_memory",
        ),
        (
            MemoryError("Unable to allocate 9 bytes"),
            r"memory of the host \(Unable to allocate 9 bytes\); reduce the batch",
        ),
    ],
)
def test_used_up_memory_ends_the_trial_with_the_remedy(
    fake_cupy: FakeCupy, error: MemoryError, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback of CuPy does not say which key of the scenario helps."""

    def compute_gradients(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(Mlp, "compute_gradients", compute_gradients)

    with pytest.raises(ExceptionGroup) as failure:
        SimulatedTrial.of(AllReduce(), 2, 2, 4)
    cause = first_error_in_group(failure.value)
    assert isinstance(cause, HostError)
    with pytest.raises(HostError, match=message):
        raise cause


class SlowDevice(GuardedDevice):
    """A device that computes for 50 ms of virtual time after calls have returned, as a GPU does."""

    def synchronize(self) -> None:
        asyncio.get_running_loop()._jumping_selector.virtual_s += 0.05  # type: ignore[attr-defined]


def test_work_of_the_device_counts_before_a_deadline_is_read_and_in_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers share a GPU: a gradient that is still being computed when the deadline passes is late."""
    monkeypatch.setitem(selection._SELECTORS, "auto", lambda _: SlowDevice())

    trial = SimulatedTrial.of(SingleWorker(), 4, 1, 4)  # 4 samples: 4 ms on the declared device

    for row in trial.rows("worker-0", "node_steps"):
        assert row["compute_s"] >= 0.05
        assert row["late_s"] >= 0.04
        assert row["update_s"] >= 0.05
