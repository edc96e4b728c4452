"""Find the bandwidths for a compute utilisation of 95 % of a published table (`make bench-diloco-bandwidth`).

Without arguments, all cells of the table are searched in virtual time. On the engines `docker` and `local`, which need
real time, three cells run at the published bandwidth, unless --cells names others, and are compared with virtual time;
the dilation is the one of `dilation: auto`.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing

from benchmarks.diloco_bandwidth.published import CELLS, StudyCell
from benchmarks.diloco_bandwidth.real_time import compare_with_virtual_time
from benchmarks.diloco_bandwidth.results_page import (
    REAL_TIME_PAGE,
    RESULTS_PAGE,
    format_real_time_table,
    format_table,
    render_page,
    render_real_time_page,
)
from benchmarks.diloco_bandwidth.search import find_bandwidths
from benchmarks.diloco_bandwidth.trials import UtilisationTrials
from compose.engines import ENGINE_CLASSES, choose_engine

VIRTUAL_TIME_ENGINE = "simulated"
REAL_TIME_CELLS = "data_parallel:1B,diloco:1B,streaming_overlap_4bit:1B"
EXIT_USAGE = 2


def main(command_line: Sequence[str] | None = None) -> int:
    """Run the trials, print the table, and write the results page if --write is given. Return the exit code."""
    arguments = _parse_arguments(command_line)
    is_virtual = arguments.engine == VIRTUAL_TIME_ENGINE
    cells_by_name = {cell.name: cell for cell in CELLS}
    names = (arguments.cells or ("" if is_virtual else REAL_TIME_CELLS)).split(",")
    if problem := _find_usage_problem(arguments, names, cells_by_name):
        sys.stderr.write(f"{problem}\n")
        return EXIT_USAGE
    cells = [cells_by_name[name] for name in names if name] or list(CELLS)
    with closing(choose_engine(arguments.engine).engine) as engine:
        if is_virtual:
            found = find_bandwidths(UtilisationTrials(engine), cells)
            table, page, text = format_table(found), RESULTS_PAGE, render_page(found)
        else:
            compared = compare_with_virtual_time(engine, cells)
            text = render_real_time_page(compared, arguments.engine, arguments.write or "")
            table, page = format_real_time_table(compared), REAL_TIME_PAGE
    sys.stdout.write("\n".join([*table, ""]))
    if arguments.write is not None:
        page.write_text(text, encoding="utf-8")
    return 0


def _parse_arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.diloco_bandwidth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=sorted(ENGINE_CLASSES), default=VIRTUAL_TIME_ENGINE)
    parser.add_argument("--cells", default="", help=f"comma-separated, such as {REAL_TIME_CELLS}")
    parser.add_argument(
        "--write",
        metavar="MACHINE",
        nargs="?",
        const="",
        help="also write the results page; on docker and local with this machine name",
    )
    return parser.parse_args(command_line)


def _find_usage_problem(
    arguments: argparse.Namespace, names: Sequence[str], cells_by_name: dict[str, StudyCell]
) -> str:
    """Return why the trials cannot start; empty if they can."""
    if unknown := [name for name in names if name and name not in cells_by_name]:
        return f"unknown cell {unknown[0]}; cells are {', '.join(cells_by_name)}"
    if arguments.write is None:
        return ""
    if arguments.engine == VIRTUAL_TIME_ENGINE and arguments.cells:
        return "--write writes the page of all cells; remove --cells"
    if arguments.engine != VIRTUAL_TIME_ENGINE and not arguments.write:
        return f"--write needs the name of this machine on engine {arguments.engine}"
    return ""
