"""Measurement of reference convergence points (`make bench-convergence`).

One worker trains in virtual time, with every batch of a workload and several seeds, until it reaches the target. The
seeds are other ones than those of scenarios, so that trials and reference are independent.

- Every finished run is saved in `runs/convergence.json`. An interrupted measurement goes on with the missing runs if
  the commit is the same; runs of another commit are measured anew, so that all points of a workload are of one commit.
- With --write, the workloads are written to the reference file of the package and to the results page. Other workloads
  of the file stay as they are. --write needs a checkout without uncommitted changes.
- WORKLOADS=quickstart,regression measures only these workloads.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from analysis.convergence.reference_points import (
    MIN_SEEDS,
    REFERENCE_FILE,
    MeasuredOn,
    ReferencePoint,
    ReferenceWorkload,
    read_reference_file,
    write_reference_file,
)
from benchmarks.convergence.catalogue import REFERENCE_CASES, ReferenceCase, convergence_workload
from benchmarks.convergence.results_page import RESULTS_PAGE, format_workload_table, write_page
from benchmarks.convergence.single_worker import samples_to_target_of_one_worker
from compose.runs.git_commit import git_commit_of_checkout

STATE_FILE = Path("runs") / "convergence.json"
FIRST_SEED = 1001  # scenarios have seeds from 1 on
DEFAULT_SEEDS = 10
SHORT_COMMIT_DIGITS = 7
EXIT_USAGE = 2

# Samples to the target by workload, batch and seed; JSON has text keys.
RunsBySeed = dict[str, int | None]
RunsByBatch = dict[str, RunsBySeed]


class MeasurementState:
    """Finished runs in a file, for a measurement that may be interrupted. Runs of other commits do not count."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self._commit = commit
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self._runs: dict[str, dict[str, Any]] = {
            name: entry for name, entry in content.items() if entry["commit"] == commit
        }

    def runs_of(self, workload_name: str) -> RunsByBatch:
        """Return the finished runs of a workload by batch and seed."""
        runs: RunsByBatch = self._entry(workload_name)["runs"]
        return runs

    def add_run(self, workload_name: str, batch: int, seed: int, samples: int | None) -> None:
        """Add a finished run, and save all runs."""
        self._entry(workload_name)["runs"].setdefault(str(batch), {})[str(seed)] = samples
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self._runs), encoding="utf-8")
        unfinished.replace(self._path)

    def _entry(self, workload_name: str) -> dict[str, Any]:
        return self._runs.setdefault(workload_name, {"commit": self._commit, "runs": {}})


def main(command_line: Sequence[str] | None = None) -> int:
    """Measure the missing runs, print the tables, and write file and page if --write is given. Return the exit code."""
    arguments = _parse_arguments(command_line)
    names = [name for name in arguments.workloads.split(",") if name] or list(REFERENCE_CASES)
    commit = _current_commit()
    if problem := _find_usage_problem(arguments, names, commit):
        sys.stderr.write(f"{problem}\n")
        return EXIT_USAGE
    state = MeasurementState(arguments.state, commit)
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    for name in names:
        _measure_missing_runs(name, REFERENCE_CASES[name], seeds, state)
    measured = MeasuredOn(
        machine=arguments.write or platform.platform(),
        commit=commit,
        date=datetime.now(UTC).date().isoformat(),
        versions={"python": platform.python_version(), "numpy": np.__version__},
    )
    references = [_make_reference(name, state.runs_of(name), seeds, measured) for name in names]
    for reference in references:
        sys.stdout.write("\n".join([f"\n{reference.name}", "", *format_workload_table(reference), ""]))
    if arguments.write:
        others = [each for each in read_reference_file(arguments.file) if each.name not in names]
        write_reference_file(arguments.file, [*others, *references])
        write_page(arguments.page, read_reference_file(arguments.file))
    return 0


def _parse_arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.convergence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default="", help=f"comma-separated; default: {','.join(REFERENCE_CASES)}")
    parser.add_argument("--seeds", type=int, default=DEFAULT_SEEDS, help=f"runs per batch, at least {MIN_SEEDS}")
    parser.add_argument("--write", metavar="MACHINE", help="also write the reference file and the results page")
    parser.add_argument("--state", type=Path, default=STATE_FILE, help="file of the finished runs")
    parser.add_argument("--file", type=Path, default=REFERENCE_FILE, help="reference file to write")
    parser.add_argument("--page", type=Path, default=RESULTS_PAGE, help="results page to write")
    return parser.parse_args(command_line)


def _find_usage_problem(arguments: argparse.Namespace, names: Sequence[str], commit: str) -> str:
    """Return why the measurement cannot start; empty if it can."""
    if unknown := [name for name in names if name not in REFERENCE_CASES]:
        return f"unknown workload {unknown[0]}; workloads are {', '.join(REFERENCE_CASES)}"
    if arguments.seeds < MIN_SEEDS:
        return f"--seeds {arguments.seeds} is too few; use at least {MIN_SEEDS}"
    if arguments.write and ("+dirty" in commit or not commit):
        return f"--write needs a commit; this checkout is {commit or 'no checkout'}: commit all changes"
    return ""


def _current_commit() -> str:
    """Return the abbreviated commit, with +dirty if the checkout has uncommitted changes; empty outside a checkout."""
    head = git_commit_of_checkout()
    return head["id"][:SHORT_COMMIT_DIGITS] + ("+dirty" if head["dirty"] else "") if head else ""


def _measure_missing_runs(name: str, case: ReferenceCase, seeds: Sequence[int], state: MeasurementState) -> None:
    missing = list(_missing_runs(case, seeds, state.runs_of(name)))
    for number, (batch, seed) in enumerate(missing, start=1):
        started_s = time.monotonic()
        samples = samples_to_target_of_one_worker(case.make_run_workload(batch), seed)
        state.add_run(name, batch, seed, samples)
        result = f"{samples:,} samples" if samples else "target missed"
        seconds = time.monotonic() - started_s
        sys.stderr.write(f"{name} [{number}/{len(missing)}] batch {batch}, seed {seed}: {result}, {seconds:.1f} s\n")


def _missing_runs(
    case: ReferenceCase, seeds: Sequence[int], finished: Mapping[str, RunsBySeed]
) -> Iterator[tuple[int, int]]:
    for batch in case.batches:
        for seed in seeds:
            if str(seed) not in finished.get(str(batch), {}):
                yield batch, seed


def _make_reference(
    name: str, runs: Mapping[str, RunsBySeed], seeds: Sequence[int], measured: MeasuredOn
) -> ReferenceWorkload:
    case = REFERENCE_CASES[name]
    run_workload = case.make_run_workload(case.batches[0])
    workload = convergence_workload(run_workload)
    points = tuple(
        ReferencePoint(batch=batch, samples_by_seed={seed: runs[str(batch)][str(seed)] for seed in seeds})
        for batch in case.batches
    )
    return ReferenceWorkload(
        name=name,
        workload=workload,
        batch_scaling=run_workload.batch_scaling,
        budget_samples=run_workload.evaluation_schedule(1).epochs * run_workload.evaluation_schedule(1).order.samples,
        points=points,
        measured=measured,
    )
