"""Memory of training: known peaks and leaks are measured, also after memory was freed."""

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.compute import glibc
from benchmarks.compute.__main__ import ENVIRONMENTS
from benchmarks.compute.step_memory import StepMemory, measure_training_memory
from services.schema.errors import HostError

MB = 1_000_000
BLOCK_BYTES = 100_000
PEAK_BYTES = 40 * MB
LEAKED_BYTES_PER_STEP = 100
GROWTH_STEPS = 1000


class BlockTraining:
    """Training whose step needs PEAK_BYTES, and may keep some bytes for ever."""

    def __init__(self, leaked_bytes: int) -> None:
        self._leaked_bytes, self._leak = leaked_bytes, list[bytearray]()

    def run_step(self) -> float:
        self._leak.append(bytearray(self._leaked_bytes))
        blocks = allocate_blocks(PEAK_BYTES)
        if not self._leaked_bytes:
            self._leak.clear()
        return float(blocks[0][0])


def allocate_blocks(size_bytes: int) -> list[np.ndarray]:
    """Return arrays of BLOCK_BYTES that are in memory: their pages have been written."""
    return [np.full(BLOCK_BYTES, 1, "uint8") for _ in range(size_bytes // BLOCK_BYTES)]


def measure_after_freeing(freed_bytes: int, leaked_bytes: int, growth_steps: int) -> StepMemory:
    """Return the memory of a training in a process that has freed memory which the allocator keeps."""
    blocks = allocate_blocks(freed_bytes)
    last = np.ones(BLOCK_BYTES, "uint8")  # keeps the heap from shrinking
    del blocks
    memory = measure_training_memory(lambda: BlockTraining(leaked_bytes), growth_steps)
    assert last.all()
    return memory


def measure_in_process(freed_bytes: int, leaked_bytes: int, growth_steps: int) -> StepMemory:
    """Return what `measure_after_freeing` returns in a new process, with the benchmark's settings of the allocator."""
    arguments = f"{freed_bytes}, {leaked_bytes}, {growth_steps}"
    output = run_program(f"m = measure_after_freeing({arguments}); print(m.peak_bytes, m.growth_bytes)")
    peak_bytes, growth_bytes = map(int, output.split())
    return StepMemory(peak_bytes, growth_bytes)


def run_program(text: str) -> str:
    """Return what a line of Python prints that may use the names of this module."""
    command = [sys.executable, "-c", f"from tests.benchmarks.test_step_memory import *; {text}"]
    environment = os.environ | ENVIRONMENTS["step_memory"]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout


def measure_growth_by_attribute_names(count: int) -> int:
    """Return the growth of the memory in use while NumPy creates `count` names of an attribute at many addresses."""
    before_bytes, texts = glibc.count_used_bytes(), [""] * 50
    for number in range(count):
        np.empty(3).flags.writeable = False
        texts[number % 50] = "x" * (number % 41)
    del texts
    return glibc.count_used_bytes() - before_bytes


@pytest.mark.parametrize("freed_bytes", [0, 2 * PEAK_BYTES], ids=["fresh process", "after freeing twice as much"])
def test_a_known_peak_is_measured(freed_bytes: int) -> None:
    """A dataset that was loaded leaves free memory; a training in it would seem to need none, and meet every limit."""
    memory = measure_in_process(freed_bytes, leaked_bytes=0, growth_steps=0)

    assert memory.peak_bytes == pytest.approx(PEAK_BYTES, rel=0.2)


def test_a_small_leak_per_step_is_measured_and_free_memory_is_no_leak() -> None:
    """A run has many more steps than the benchmark, so that a small leak uses up the memory of a node."""
    leaking = measure_in_process(2 * PEAK_BYTES, LEAKED_BYTES_PER_STEP, GROWTH_STEPS)
    tight = measure_in_process(2 * PEAK_BYTES, 0, GROWTH_STEPS)

    assert leaking.growth_bytes >= LEAKED_BYTES_PER_STEP * GROWTH_STEPS
    assert abs(tight.growth_bytes) < LEAKED_BYTES_PER_STEP * GROWTH_STEPS / 10


def test_names_in_the_cache_of_attributes_are_no_growth() -> None:
    """Python keeps some of these names alive, at most 4096, whatever the number of steps."""
    warm_up = "measure_growth_by_attribute_names(100)"

    assert int(run_program(f"{warm_up}; print(measure_growth_by_attribute_names(20_000))")) < 10_000


def test_another_c_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the functions of glibc, the numbers would be wrong without notice."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())

    with pytest.raises(HostError, match="no malloc_trim; memory of training is measured"):
        glibc.release_free_memory()
    with pytest.raises(HostError, match="no mallinfo2"):
        glibc.count_used_bytes()
