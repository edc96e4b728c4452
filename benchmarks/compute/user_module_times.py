"""Runner of `make bench-modules`: forward and backward pass of users' modules, in Ensayo and in plain PyTorch.

Both take turns in one process with the environment of nodes; a turn has a few steps. Plain PyTorch leaves the gradients
at the parameters; Ensayo also sets the parameters in each step, and returns all gradients in one vector.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.markdown import markdown_table
from compose.engines.local import NODE_ENVIRONMENT
from compose.own_code.files import digest_code, read_code_files
from services.learning.datasets import LearningTask
from services.learning.layout import Shape
from services.learning.models import TorchModel
from services.learning.own_code import load_user_object
from services.learning.randomness import BatchRandomness
from services.schema.arrays import HostArray

CODE_FOLDER = Path(__file__).with_name("user_modules")
DEFAULT_ROUNDS, WARM_UP_ROUNDS, STEPS_PER_TURN = 200, 5, 5
MAX_RATIO, MAX_DIFFERENCE_S = 1.1, 0.0002  # one of both suffices
HEADER = ("module", "batch", "parameters", "PyTorch, ms", "Ensayo, ms", "ratio: median", "quartiles", "gate")


@dataclass(frozen=True)
class ModuleCase:
    """A module with a batch of random images."""

    class_name: str
    image_shape: Shape
    batch: int

    @property
    def task(self) -> LearningTask:
        """Classification of the images."""
        return LearningTask(inputs=self.image_shape, outputs=10, loss="cross_entropy")

    @property
    def model(self) -> TorchModel:
        """The module as a model of a scenario."""
        module = {"file": str(CODE_FOLDER / "modules.py"), "name": self.class_name, "folder": str(CODE_FOLDER)}
        digest = digest_code(read_code_files("module", CODE_FOLDER))
        return TorchModel.model_validate({"module": module | {"sha256": digest}, "buffers": "recompute"})

    def draw_batch(self) -> tuple[HostArray, HostArray]:
        """Return random images and labels."""
        rng = np.random.default_rng(0)
        images = rng.standard_normal((self.batch, *self.image_shape), dtype=np.float32)
        return images, rng.integers(10, size=self.batch)


CASES = (
    ModuleCase("LeNet5", (1, 28, 28), 16),
    ModuleCase("Perceptron", (1, 28, 28), 16),
    ModuleCase("Perceptron", (1, 28, 28), 64),
    ModuleCase("ResNet18", (3, 32, 32), 8),
)


@dataclass(frozen=True)
class CaseTimes:
    """Mean seconds of a step in each turn of a case, in the order of the rounds."""

    case: ModuleCase
    parameter_count: int
    plain_s: list[float]
    ensayo_s: list[float]

    @property
    def is_gate_met(self) -> bool:
        """Whether Ensayo takes at most a tenth, or 0.2 ms, longer than plain PyTorch."""
        plain_s, ensayo_s = median(self.plain_s), median(self.ensayo_s)
        return median(self.ratios) <= MAX_RATIO or ensayo_s - plain_s <= MAX_DIFFERENCE_S

    @property
    def ratios(self) -> list[float]:
        """Time of Ensayo over that of PyTorch, for each round."""
        return [ensayo / plain for plain, ensayo in zip(self.plain_s, self.ensayo_s, strict=True)]

    @property
    def row(self) -> tuple[str, ...]:
        """Row of the table."""
        first, _, third = quantiles(self.ratios, n=4)
        return (
            self.case.class_name,
            str(self.case.batch),
            f"{self.parameter_count:,}",
            f"{1e3 * median(self.plain_s):.3f}",
            f"{1e3 * median(self.ensayo_s):.3f}",
            f"{median(self.ratios):.3f}",
            f"{first:.3f} to {third:.3f}",
            "met" if self.is_gate_met else "missed",
        )


def measure_case(case: ModuleCase, rounds: int) -> CaseTimes:
    """Measure a case; both sides take turns, and each begins every other round."""
    params = case.model.init_parameters(case.task, 0, "float32")
    x, y = case.draw_batch()
    module = _create_plain_module(case)
    sides: tuple[Callable[[int], Any], ...] = (
        lambda _: _run_plain_step(module, x, y),
        _ensayo_step(case, params, x, y),
    )
    times_s: tuple[list[float], ...] = ([], [])
    for number in range(WARM_UP_ROUNDS + rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            start_s = perf_counter()
            for step in range(STEPS_PER_TURN):
                sides[side](STEPS_PER_TURN * number + step)
            times_s[side].append((perf_counter() - start_s) / STEPS_PER_TURN)
    plain_s, ensayo_s = (times[WARM_UP_ROUNDS:] for times in times_s)
    return CaseTimes(case, len(params), plain_s, ensayo_s)


def _create_plain_module(case: ModuleCase) -> Any:
    torch.manual_seed(0)
    return load_user_object(case.model.module)().train()


def _run_plain_step(module: Any, x: HostArray, y: HostArray) -> float:
    module.zero_grad(set_to_none=True)
    loss = cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
    loss.backward()
    value: float = loss.item()
    return value


def _ensayo_step(case: ModuleCase, params: HostArray, x: HostArray, y: HostArray) -> Callable[[int], Any]:
    model, task = case.model, case.task
    return lambda step: model.loss_and_grad(task, params, x, y, BatchRandomness(1, step, 0))


def table_lines(times: list[CaseTimes]) -> Iterator[str]:
    """Yield the lines of the table."""
    return markdown_table(HEADER, [each.row for each in times])


def main() -> int:
    """Measure all cases and print the table; return 1 if a gate is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.compute.user_module_times", description=__doc__)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="turns of each side per module")
    rounds = max(2, parser.parse_args().rounds)
    if any(os.environ.get(name) != value for name, value in NODE_ENVIRONMENT.items()):
        command = [sys.executable, "-m", "benchmarks.compute.user_module_times", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **NODE_ENVIRONMENT})  # noqa: S606 - this program
    times = [measure_case(case, rounds) for case in CASES]
    sys.stdout.write("\n".join(table_lines(times)) + "\n")
    return int(not all(each.is_gate_met for each in times))


if __name__ == "__main__":
    sys.exit(main())
