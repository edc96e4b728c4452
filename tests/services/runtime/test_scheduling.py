"""Time slices of the kernel's scheduler on this host."""

import os
import platform
import subprocess
import sys

import pytest

FIRST_KERNEL = (6, 12)
# A process inherits its time slice, which may be short already: the program first sets a long one.
PROGRAM = """
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


def kernel_version() -> tuple[int, ...]:
    """Return the version of this host's kernel."""
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


@pytest.mark.skipif(
    kernel_version() < FIRST_KERNEL or platform.machine() not in {"x86_64", "aarch64"},
    reason="time slices can be set since Linux 6.12",
)
def test_a_process_and_threads_that_it_starts_later_get_the_shortest_slice() -> None:
    """gRPC starts its threads after the process has reduced its slice."""
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30
    ).stdout

    assert output.split() == ["3000000", "100000", "100000"]


def test_the_niceness_of_a_process_stays_as_it_is() -> None:
    """A user who runs a study with `nice` wants other programs to come first."""
    program = "import os; from services.runtime.scheduling import reduce_wakeup_latency as reduce; os.nice(5); reduce()"
    output = subprocess.run(
        [sys.executable, "-c", f"{program}; print(os.nice(0))"], capture_output=True, text=True, check=True, timeout=30
    ).stdout

    assert int(output) == min(os.nice(0) + 5, 19)
