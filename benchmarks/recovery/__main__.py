"""Benchmark of recovery (`make bench-recovery`): times after one kill, and a training with many kills.

Nodes are killed with SIGKILL, in containers (`--engine docker`), as processes (`local`) or in virtual time
(`simulated`). The command takes about 25 minutes in real time, and about
six with `--kills 0`, which leaves the training with many kills out.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.fidelity.provenance import current_origin
from benchmarks.recovery.cases import KILLS
from benchmarks.recovery.gates import list_gates
from benchmarks.recovery.measurements import measure_recovery
from benchmarks.recovery.results_page import RESULTS_PAGE, format_gates, format_page
from compose.engines import ENGINE_CLASSES
from compose.engines.local import LocalEngine

DEFAULT_ENGINE = "docker"
EXIT_MISSED, EXIT_USAGE = 1, 2


def main(command_line: Sequence[str] | None = None) -> int:
    """Measure, print the table of the gates, and write the page if --write is given.

    Returns:
        0, 1 if a gate is missed, or 2 if the arguments are wrong.
    """
    arguments = _parse_arguments(command_line)
    origin = current_origin(LocalEngine())
    if problem := _find_problem(arguments, is_one_commit=origin.is_one_commit):
        sys.stderr.write(f"{problem}\n")
        return EXIT_USAGE
    with ExitStack() as stack:
        runs_folder = arguments.runs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ensayo-")))
        measured = measure_recovery(arguments.engine, arguments.kills, runs_folder, _report_progress)
    gates = list(list_gates(measured))
    sys.stdout.write(format_gates(gates) + "\n")
    if arguments.write and measured.long is not None:
        host = origin.host
        machine = f"{arguments.write} ({host.cpu}, {host.cores} cores, Linux {host.kernel})"
        page = format_page(
            measured, measured.long, arguments.engine, f"{machine}, commit {origin.commit}, {origin.date}"
        )
        RESULTS_PAGE.write_text(page, encoding="utf-8")
    return 0 if all(gate.is_met for gate in gates) else EXIT_MISSED


def _report_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _find_problem(arguments: argparse.Namespace, *, is_one_commit: bool) -> str:
    """Return why nothing can be measured; empty if it can."""
    if arguments.kills < 0:
        return f"--kills {arguments.kills}: the number of kills is at least 1, or 0 for no long training"
    if not arguments.write:
        return ""
    if arguments.kills != KILLS:
        return f"--write: the page has {KILLS} kills; remove --kills"
    return "" if is_one_commit else "--write: the page needs a checkout without uncommitted changes"


def _parse_arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench-recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=sorted(ENGINE_CLASSES), default=DEFAULT_ENGINE)
    parser.add_argument("--kills", type=int, default=KILLS, help=f"in the long training; 0: none; default: {KILLS}")
    parser.add_argument("--runs", type=Path, help="folder that keeps the run folders; default: they are removed")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args(command_line)


if __name__ == "__main__":
    sys.exit(main())
