"""Compute device that is the host's processor."""

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from services.runtime.device.base import ComputeDevice
from services.schema.arrays import Array, HostArray


@dataclass(frozen=True)
class CpuDevice(ComputeDevice):
    """Compute device that is the host's processor, used through NumPy."""

    name: ClassVar[str] = "cpu"
    has_own_memory: ClassVar[bool] = False

    def to_device(self, array: Array) -> HostArray:
        return np.asarray(array)

    def to_host(self, array: Array) -> HostArray:
        return np.asarray(array)

    def synchronize(self) -> None:
        """Return at once: NumPy calls return when their work is done."""


def cpu_model_name() -> str:
    """Return the model name of the host's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())
