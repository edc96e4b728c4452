"""Runner of `make bench-compute`: step time and memory of every model, compared with PyTorch.

All measurements run in processes of their own, with the allocator settings of nodes.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from benchmarks.compute.cases import CASES
from benchmarks.compute.results import (
    GROWTH_STEPS,
    REMARKS,
    CaseMemory,
    CaseTimes,
    are_gates_met,
    gate_lines,
    memory_table,
    time_table,
)
from benchmarks.compute.step_memory import StepMemory
from benchmarks.compute.step_times import StepTime
from benchmarks.compute.training import SIDES
from benchmarks.fidelity.provenance import current_origin
from compose.engines.local import NODE_ENVIRONMENT, LocalEngine
from services.runtime.device import select_compute_device
from services.schema.errors import HostError

DEFAULT_ROUNDS, MIN_ROUNDS = 21, 5
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Python's own allocator would hide small objects from the C library, which counts the memory in use.
ENVIRONMENTS = {"step_times": NODE_ENVIRONMENT, "step_memory": {**NODE_ENVIRONMENT, "PYTHONMALLOC": "malloc"}}
RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "compute.md"


def main() -> int:
    """Measure the selected cases, print the tables and write the page if --write is given.

    Returns:
        0 if all gates are met, 1 if a gate is missed, 2 if a case is unknown or no page can be written.
    """
    arguments = _parse_arguments()
    names = [name for name in arguments.cases.split(",") if name] or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        sys.stderr.write(f"unknown case {unknown[0]}; cases are {', '.join(CASES)}\n")
        return 2
    origin = current_origin(LocalEngine())
    if arguments.write and (reason := _unwritable_page_reason(names, is_one_commit=origin.is_one_commit)):
        sys.stderr.write(f"--write: {reason}\n")
        return 2
    thread_counts = sorted({1, arguments.threads})
    times = [_measure_times(name, threads, arguments.rounds) for threads in thread_counts for name in names]
    memories = [_measure_memory(name) for name in names]
    gates = list(gate_lines(times, memories))
    tables = "\n".join([*time_table(times), "", *memory_table(memories), "", *gates])
    text = f"{tables}\n\n" + f"{REMARKS}\n{gpu_sentence()}\n"
    sys.stdout.write(text)
    if arguments.write:
        host = origin.host
        machine = f"{arguments.write} ({host.cpu}, {host.cores} cores, Linux {host.kernel})"
        sentences = f"Machine: {machine}. Commit {origin.commit}, {origin.date}. {_version_sentence()}"
        RESULTS_PAGE.write_text(f"# What `make bench-compute` printed\n\n{sentences}\n\n{text}", encoding="utf-8")
    return int(not are_gates_met(gates))


def gpu_sentence() -> str:
    """Return a sentence about the GPU of this host, which is not measured."""
    try:
        device = select_compute_device("cuda")
    except HostError:
        return "GPU: no GPU."
    return f"GPU: {device.description}, not measured; this benchmark compares compute on the CPU."


def _unwritable_page_reason(case_names: Sequence[str], *, is_one_commit: bool) -> str | None:
    """Return why these measurements cannot be published; None if they can."""
    if missing := [name for name in CASES if name not in case_names]:
        return f"the page needs all cases; missing: {', '.join(missing)}"
    return None if is_one_commit else "the page needs a checkout without uncommitted changes"


def _measure_times(case_name: str, threads: int, rounds: int) -> CaseTimes:
    sys.stderr.write(f"step time of {case_name}, threads: {threads}\n")
    samples = _run_in_process("step_times", case_name, str(max(rounds, MIN_ROUNDS)), threads=threads)
    return CaseTimes(case_name, threads, {side: [StepTime(**sample) for sample in samples[side]] for side in SIDES})


def _measure_memory(case_name: str) -> CaseMemory:
    sys.stderr.write(f"memory of {case_name}\n")
    results = {side: _run_in_process("step_memory", case_name, side, str(GROWTH_STEPS), threads=1) for side in SIDES}
    return CaseMemory(case_name, {side: StepMemory(**results[side]) for side in SIDES})


def _run_in_process(module: str, *arguments: str, threads: int) -> Any:
    """Run a module of this package in a new process, and return the JSON document that it prints."""
    environment = os.environ | ENVIRONMENTS[module] | dict.fromkeys(THREAD_VARIABLES, str(threads))
    command = [sys.executable, "-m", f"benchmarks.compute.{module}", *arguments]
    process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603 - this program
    return json.loads(process.stdout)


def _version_sentence() -> str:
    """Return the versions of NumPy, of its library for matrix products, with the kernels it chose, and of PyTorch."""
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    blas = ", ".join(f"{one['internal_api']} {one['version']}, kernels {one['architecture']}" for one in libraries)
    return f"NumPy {np.__version__} ({blas}), PyTorch {version('torch')}."


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.compute", description=__doc__)
    parser.add_argument("--cases", default="", help=f"comma-separated, of {', '.join(CASES)}; default: all")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=f"samples per row; at least {MIN_ROUNDS}")
    parser.add_argument(
        "--threads", type=int, default=1, help="also measure with this number of threads; default: one thread only"
    )
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
