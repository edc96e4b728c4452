"""Slices of a core, as this host's kernel knows them."""

import platform
import subprocess
import sys

import pytest

FIRST = (6, 12)
# Whoever started this process may have short slices, and they are inherited: it begins with long ones of its own.
ASK = """
import ctypes
from concurrent.futures import ThreadPoolExecutor
from services.runtime import scheduling
call, _ = scheduling._SYSCALL_NUMBERS[scheduling.platform.machine()]
long = scheduling._SCHED_ATTR.pack(scheduling._SCHED_ATTR.size, 0, 0, 0, 0, 3_000_000, 0, 0)
ctypes.CDLL(None).syscall(call, 0, long, 0)
before = scheduling.read_time_slice_ns()
scheduling.reduce_wakeup_latency()
with ThreadPoolExecutor(1) as pool:
    print(before, scheduling.read_time_slice_ns(), pool.submit(scheduling.read_time_slice_ns).result())
"""


def kernel() -> tuple[int, ...]:
    """Version of this host's kernel."""
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


@pytest.mark.skipif(
    kernel() < FIRST or platform.machine() not in {"x86_64", "aarch64"}, reason="slices can be asked for since 6.12"
)
def test_a_process_gets_the_least_slice_and_so_do_threads_that_it_starts() -> None:
    """gRPC starts its threads later."""
    said = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True, timeout=30).stdout

    assert said.split() == ["3000000", "100000", "100000"]
