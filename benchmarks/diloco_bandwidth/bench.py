"""Find the bandwidths for a compute utilisation of 95 % of a published table (`make bench-diloco-bandwidth`).

Without arguments, all cells of the table are searched in virtual time. On the engines `docker` and `local`, which need
real time, three cells run at the published bandwidth, unless --cells names others, and are compared with virtual time;
the dilation is the one of `dilation: auto`.
"""

import sys
from collections.abc import Sequence
from contextlib import closing

from benchmarks.diloco_bandwidth.published import CELLS
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
from benchmarks.page_origin import describe_origin
from benchmarks.study_arguments import EXIT_USAGE, parse_study_arguments
from compose.engines import choose_engine

REAL_TIME_CELLS = "data_parallel:1B,diloco:1B,streaming_overlap_4bit:1B"


def main(command_line: Sequence[str] | None = None) -> int:
    """Run the trials, print the table, and write the results page if --write is given. Return the exit code."""
    arguments = parse_study_arguments("benchmarks.diloco_bandwidth", __doc__, "cell", REAL_TIME_CELLS, command_line)
    cells_by_name = {cell.name: cell for cell in CELLS}
    if problem := arguments.find_problem("cell", cells_by_name, "all cells"):
        sys.stderr.write(f"{problem}\n")
        return EXIT_USAGE
    cells = [cells_by_name[name] for name in arguments.parts] or list(CELLS)
    with closing(choose_engine(arguments.engine).engine) as engine:
        if arguments.is_virtual:
            found = find_bandwidths(UtilisationTrials(engine), cells)
            table, page, text = format_table(found), RESULTS_PAGE, render_page(found)
        else:
            compared = compare_with_virtual_time(engine, cells)
            text = render_real_time_page(compared, arguments.engine, describe_origin(arguments.machine or ""))
            table, page = format_real_time_table(compared), REAL_TIME_PAGE
    sys.stdout.write("\n".join([*table, ""]))
    if arguments.machine is not None:
        page.write_text(text, encoding="utf-8")
    return 0
