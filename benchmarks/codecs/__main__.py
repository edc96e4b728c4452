"""Runner of `make bench-codecs`: rates at which compressors compress and decompress 100 MB on one core."""

import argparse
import os
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.codecs.cases import CASES
from benchmarks.codecs.results import REMARKS, are_goals_met, codec_table, goal_lines
from benchmarks.codecs.timing import has_torch, measure_codecs
from benchmarks.fidelity.provenance import current_origin
from compose.engines.local import NODE_ENVIRONMENT, LocalEngine

DEFAULT_ROUNDS, MIN_ROUNDS = 9, 5
RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "codecs.md"


def main() -> int:
    """Measure the selected compressors, print the table and write the page if --write is given.

    The process first restarts itself with the allocator settings of nodes, since these change the speed of copies.

    Returns:
        0 if all goals are met, 1 if a goal is missed, 2 if a case is unknown or no page can be written.
    """
    if not os.environ.items() >= NODE_ENVIRONMENT.items():
        command = [sys.executable, "-m", "benchmarks.codecs", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | NODE_ENVIRONMENT)  # noqa: S606 - this program
    arguments = _parse_arguments()
    names = arguments.case or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        sys.stderr.write(f"unknown case {unknown[0]}; cases are {'; '.join(CASES)}\n")
        return 2
    origin = current_origin(LocalEngine())
    if arguments.write and not (origin.is_one_commit and has_torch() and names == list(CASES)):
        sys.stderr.write("--write: the page needs all cases, PyTorch, and a checkout without uncommitted changes\n")
        return 2
    samples = measure_codecs(names, max(arguments.rounds, MIN_ROUNDS))
    goals = list(goal_lines(samples))
    text = "\n".join([*codec_table(samples), "", *goals, "", REMARKS])
    sys.stdout.write(text)
    if arguments.write:
        host, torch_version = origin.host, version("torch")
        machine = f"{arguments.write} ({host.cpu}, {host.cores} cores, Linux {host.kernel})"
        versions = f"NumPy {np.__version__}, PyTorch {torch_version}."
        sentences = f"Machine: {machine}. Commit {origin.commit}, {origin.date}. {versions}"
        RESULTS_PAGE.write_text(f"# What `make bench-codecs` printed\n\n{sentences}\n\n{text}", encoding="utf-8")
    return int(not are_goals_met(goals))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.codecs", description=__doc__)
    parser.add_argument("--case", action="append", help="measure only this case; may be repeated; default: all")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=f"samples per row; at least {MIN_ROUNDS}")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
