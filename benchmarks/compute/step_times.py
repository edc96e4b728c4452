"""Seconds per training step of Ensayo and of PyTorch, which take turns in one process.

`python -m benchmarks.compute.step_times CASE ROUNDS` prints the samples as JSON.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from math import ceil

from benchmarks.compute.cases import CASES, ComputeCase
from benchmarks.compute.training import SIDES, Side, Training, create_training

WARM_UP_STEPS = 5
BLOCK_S, MAX_BLOCK_STEPS = 0.1, 200  # of one side in one round


@dataclass(frozen=True)
class StepTime:
    """Mean time of a training step in one block of steps: seconds of the clock, and of this process on all cores."""

    wall_s: float
    cpu_s: float


def measure_step_times(case: ComputeCase, rounds: int) -> dict[Side, list[StepTime]]:
    """Return one sample of each side per round. The sides take turns, and each begins every other round."""
    trainings = {side: create_training(case, side) for side in SIDES}
    warm_up = [_measure_block(training, WARM_UP_STEPS) for training in trainings.values()]
    steps = min(MAX_BLOCK_STEPS, ceil(BLOCK_S / max(block.wall_s for block in warm_up)))
    samples: dict[Side, list[StepTime]] = {side: [] for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 else reversed(SIDES):
            samples[side].append(_measure_block(trainings[side], steps))
    return samples


def _measure_block(training: Training, steps: int) -> StepTime:
    wall_start_s, cpu_start_s = time.perf_counter(), time.process_time()
    for _ in range(steps):
        training.run_step()
    return StepTime((time.perf_counter() - wall_start_s) / steps, (time.process_time() - cpu_start_s) / steps)


def main() -> None:
    """Measure one case and print the samples."""
    _, case_name, rounds = sys.argv
    samples = measure_step_times(CASES[case_name], int(rounds))
    sys.stdout.write(json.dumps({side: [asdict(sample) for sample in samples[side]] for side in SIDES}))


if __name__ == "__main__":
    main()
