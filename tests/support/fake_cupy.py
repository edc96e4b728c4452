"""Stand-in for CuPy on a host without a GPU: guarded arrays, streams whose copies wait, and limited memory.

It has the part of CuPy's interface that the device `cuda` uses, as documented. It shows in which order the device calls
CuPy, and not that CuPy works.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from guarded_arrays import GuardedArray, GuardedDevice

GPU_BYTES = 16 << 30


class OutOfMemoryError(MemoryError):
    """The error of CuPy when its pool or the GPU has no memory left."""


@dataclass
class FakeStream:
    """Stream of a GPU: copies that are not blocking happen when the host synchronises."""

    non_blocking: bool = False
    calls: list[str] = field(default_factory=list)
    _copies: list[Callable[[], None]] = field(default_factory=list)
    _awaits_event: bool = False

    def record(self) -> "FakeStream":
        return self

    def wait_event(self, event: "FakeStream") -> None:
        self.calls.append("wait")
        self._awaits_event = True

    def copy_later(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy when the host synchronises; without an awaited event, the source is not computed yet."""
        self.calls.append("copy")
        values = source.copy() if self._awaits_event else np.full_like(source, np.nan)
        self._awaits_event = False
        self._copies.append(lambda: np.copyto(target, values))

    def synchronize(self) -> None:
        self.calls.append("synchronize")
        for copy in self._copies:
            copy()
        self._copies.clear()


@dataclass
class FakeCupy:
    """What the device has asked of CuPy."""

    module: ModuleType
    default_stream: FakeStream
    streams: list[FakeStream] = field(default_factory=list)  # those that were created
    pinned_bytes: list[int] = field(default_factory=list)  # of each allocation of pinned memory
    pool_limit_bytes: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make `import cupy` return the stand-in."""
        monkeypatch.setitem(sys.modules, "cupy", self.module)
        monkeypatch.setattr(GuardedArray, "get", self._get, raising=False)

    def create_stream(self, *, non_blocking: bool) -> FakeStream:
        self.streams.append(FakeStream(non_blocking))
        return self.streams[-1]

    def allocate_pinned_memory(self, size: int) -> bytearray:
        self.pinned_bytes.append(size)
        return bytearray(2 * size)  # a pool returns blocks that may be larger

    def limit_pool(self, *, size: int) -> None:
        self.pool_limit_bytes = size

    @staticmethod
    def _get(
        array: GuardedArray, stream: FakeStream | None = None, *, out: np.ndarray, blocking: bool = True
    ) -> np.ndarray:
        assert (out.shape, out.dtype) == (array.shape, array.dtype)
        if stream is None or blocking:
            np.copyto(out, array._values)
        else:
            stream.copy_later(array._values, out)
        return out


def make_fake_cupy() -> FakeCupy:
    """Return a stand-in for CuPy with one GPU of 16 GiB."""
    fake = FakeCupy(ModuleType("cupy"), FakeStream())
    runtime = SimpleNamespace(
        getDeviceProperties=lambda _: {"name": b"Some GPU"}, memGetInfo=lambda: (GPU_BYTES, GPU_BYTES)
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        Stream=fake.create_stream,
        get_current_stream=lambda: fake.default_stream,
        alloc_pinned_memory=fake.allocate_pinned_memory,
    )
    vars(fake.module).update(
        __version__="14.0.0",
        cuda=cuda,
        ones=lambda size: _to_device(np.ones(size)),
        asarray=_to_device,
        get_default_memory_pool=lambda: SimpleNamespace(set_limit=fake.limit_pool),
    )
    return fake


def _to_device(array: Any, *, blocking: bool = False) -> GuardedArray:
    return GuardedDevice().to_device(array)
