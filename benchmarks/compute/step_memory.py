"""Peak memory of training steps of Ensayo or of PyTorch, in a process of its own.

`python -m benchmarks.compute.step_memory CASE SIDE GROWTH_STEPS` prints peak and growth as JSON.

The kernel's high-water mark of resident memory is reset after the dataset has been loaded, a linear model has been
trained for some steps, because PyTorch loads some modules only then, and the allocator has returned its free memory.
So the peak contains parameters, state of the optimiser, gradients, intermediate results and buffers of libraries, but
neither the dataset nor modules. Memory that was free before would hide as many bytes of the training.

Growth is that of memory in use, which the allocator counts. Resident memory does not show it: it also grows when a free
part of the heap is used for the first time.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from benchmarks.compute.cases import CASES, ComputeCase
from benchmarks.compute.glibc import count_used_bytes, release_free_memory
from benchmarks.compute.training import Side, Training, create_training
from services.learning.models import LinearModel

SMALL_CASE = ComputeCase(LinearModel(), batch=2)
WARM_UP_STEPS = 3
PEAK_STEPS = 100  # afterwards, the heap has the pieces that a step needs


@dataclass(frozen=True)
class StepMemory:
    """Memory of training, in bytes."""

    peak_bytes: int  # resident, above the memory before training, during the first PEAK_STEPS steps
    growth_bytes: int  # of memory in use, during the steps after the first PEAK_STEPS


def measure_step_memory(case: ComputeCase, side: Side, growth_steps: int) -> StepMemory:
    """Train with one side, and return its peak memory and the growth of its memory."""
    data = case.dataset.load("float32")
    _run_steps(create_training(SMALL_CASE, side), WARM_UP_STEPS)
    return measure_training_memory(lambda: create_training(case, side, data), growth_steps)


def measure_training_memory(create: Callable[[], Training], growth_steps: int) -> StepMemory:
    """Create a training and run it, and return the memory that this takes in addition."""
    release_free_memory()
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before_bytes = _memory_bytes("VmRSS")
    training = create()
    _run_steps(training, PEAK_STEPS)
    peak_bytes, used_bytes = _memory_bytes("VmHWM"), count_used_bytes()
    _run_steps(training, growth_steps)
    return StepMemory(peak_bytes - before_bytes, count_used_bytes() - used_bytes)


def _run_steps(training: Training, count: int) -> None:
    for _ in range(count):
        training.run_step()


def _memory_bytes(key: str) -> int:
    """Return an entry of /proc/self/status, for example `VmRSS`, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith(f"{key}:"))
    return int(kibibytes) * 1024


def main() -> None:
    """Measure one side of a case and print the result."""
    _, case_name, side, growth_steps = sys.argv
    memory = measure_step_memory(CASES[case_name], cast("Side", side), int(growth_steps))
    sys.stdout.write(json.dumps(asdict(memory)))


if __name__ == "__main__":
    main()
