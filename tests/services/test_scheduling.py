"""Slices of a core, as this host's kernel knows them."""

import platform
import subprocess
import sys

import pytest

FIRST = (6, 12)
ASK = """
import os
from concurrent.futures import ThreadPoolExecutor
from services.scheduling import slice_ns, wake_soon
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # whoever started this may have short slices
before = slice_ns()
wake_soon()
with ThreadPoolExecutor(1) as pool:
    print(before, slice_ns(), pool.submit(slice_ns).result())
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

    before, after, started = said.split()
    assert before != after == started == "100000"
