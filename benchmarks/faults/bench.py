"""Measurement of the kill matrix (`make bench-faults`): one trial per cell, in which a node is killed from outside.

- Without arguments, all cells are measured in containers. --strategies ring,ps_bsp and --cells 'ring:*:worker:*'
  measure a part of them; the name of a cell is strategy:policy:role:phase.
- Each measured cell is saved in `runs/faults.json`. An interrupted measurement goes on with the missing cases if the
  commit and the host are the same. A cell that has a result is not measured again.
- A checkout with uncommitted changes can measure and print, but saves nothing. So can `--engine local`.
- With --write "my machine", the results page is written after a measurement that was not interrupted. Write it with the
  last part only: the changed page is an uncommitted change, after which nothing is saved. Cells without a result are
  marked as not run.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.faults.cell_result import CellResult, find_defects
from benchmarks.faults.cell_trial import measure_cell
from benchmarks.faults.cells import CELLS, STRATEGIES, MatrixCell
from benchmarks.faults.results_page import (
    RESULTS_PAGE,
    describe_result,
    format_defects,
    format_matrix,
    format_page,
    read_results,
    save_results,
)
from benchmarks.fidelity.provenance import MeasurementOrigin, current_origin
from benchmarks.fidelity.training import SilentObserver
from compose.engines import create_engine
from compose.engines.base import TrialEngine
from compose.runs.interrupt import raise_on_first_stop_signal

STATE_FILE = Path("runs") / "faults.json"
EXIT_NOT_MET, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
CONTAINER_ENGINE = "docker"


def main(command_line: Sequence[str] | None = None) -> int:
    """Measure cells, print the matrix, and write the page if --write is given. Return the exit code.

    Returns:
        0 if all chosen cells ended by their policy in time, 1 if not, 2 if the arguments do not allow the measurement,
        130 after an interruption.
    """
    arguments = _parse_arguments(command_line)
    cells = [*_choose_cells(arguments.strategies, arguments.cells)]
    if problem := _find_usage_problem(arguments, cells):
        return _report_usage_error(problem)
    engine = create_engine(arguments.engine)
    if missing := engine.missing_software():
        return _report_usage_error(missing)
    with raise_on_first_stop_signal():
        engine.prepare(SilentObserver())
        origin = current_origin(engine)
        if arguments.write and not origin.is_one_commit:
            return _report_usage_error(f"--write needs a commit; this checkout is {origin.commit}: commit all changes")
        is_saved = origin.is_one_commit and engine.name == CONTAINER_ENGINE
        results = read_results(arguments.state, origin) if is_saved else {}
        is_complete = _measure_missing_cells(cells, results, engine, origin, arguments.state if is_saved else None)
    chosen = {cell.name: results[cell.name] for cell in cells if cell.name in results}
    sys.stdout.write("\n".join([*format_matrix(chosen), "", *format_defects(chosen), ""]))
    if not is_complete:  # a changed page would make the checkout dirty, and the next start would not go on
        return EXIT_INTERRUPTED
    if arguments.write:
        RESULTS_PAGE.write_text(format_page(results, arguments.write, origin), encoding="utf-8")
    return EXIT_NOT_MET if any(any(find_defects(CELLS[name], each)) for name, each in chosen.items()) else 0


def _parse_arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=(CONTAINER_ENGINE, "local"), default=CONTAINER_ENGINE)
    parser.add_argument("--strategies", default="", help="comma-separated names of strategies; default: all")
    parser.add_argument("--cells", default="", help="comma-separated patterns of cells, such as 'ring:*:worker:*'")
    parser.add_argument("--state", type=Path, default=STATE_FILE, help="file of the measured cells")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args(command_line)


def _choose_cells(strategies: str, patterns: str) -> Iterable[MatrixCell]:
    """Yield the cells of the given strategies that match a pattern; the strongest policies come first."""
    names = strategies.split(",") if strategies else [strategy.name for strategy in STRATEGIES]
    chosen = (cell for cell in CELLS.values() if cell.strategy.name in names)
    matching = (
        cell for cell in chosen if any(fnmatchcase(cell.name, pattern) for pattern in (patterns or "*").split(","))
    )
    return sorted(matching, key=lambda cell: cell.policy != cell.strategy.strongest_policy)


def _find_usage_problem(arguments: argparse.Namespace, cells: Sequence[MatrixCell]) -> str:
    """Return why the measurement can't start; empty if it can."""
    known = [strategy.name for strategy in STRATEGIES]
    if unknown := [name for name in arguments.strategies.split(",") if name and name not in known]:
        return f"unknown strategy {unknown[0]}; strategies are {', '.join(known)}"
    if not cells:
        return f"no cell matches {arguments.cells}; a cell is for example {next(iter(CELLS))}"
    if arguments.write is not None and (arguments.engine != CONTAINER_ENGINE or not arguments.write):
        return "--write needs the name of this machine, and the engine docker"
    return ""


def _report_usage_error(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return EXIT_USAGE


def _measure_missing_cells(
    cells: Sequence[MatrixCell],
    results: dict[str, CellResult],
    engine: TrialEngine,
    origin: MeasurementOrigin,
    state: Path | None,
) -> bool:
    """Add the results of cells that have none, save all, and return whether none is missing after an interruption."""
    for number, cell in enumerate(cells, start=1):
        if cell.name not in results:
            try:
                results[cell.name] = measure_cell(cell, engine, origin)
            except KeyboardInterrupt:
                return False
            if state is not None:
                save_results(state, results.values())
        result = results[cell.name]
        text = "; ".join([describe_result(cell, result), *find_defects(cell, result)])
        sys.stderr.write(f"[{number}/{len(cells)}] {cell.name}: {text} ({result.wall_s:.0f} s of wall time)\n")
    return True
