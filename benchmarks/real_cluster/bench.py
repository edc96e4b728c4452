"""Rehearse runs of a real cluster, and compare their step times with the measured ones (`make bench-real-cluster`).

Without arguments, all runs are rehearsed in virtual time. On the engines `docker` and `local`, which need real time,
two cases are rehearsed unless --cases names others; the dilation is the one of `dilation: auto`.
"""

import sys
from collections.abc import Sequence
from contextlib import closing

from benchmarks.page_origin import describe_origin
from benchmarks.real_cluster.comparison import compare_runs
from benchmarks.real_cluster.measured_runs import read_measured_runs
from benchmarks.real_cluster.rehearsal import MIN_ROUNDS, Rehearsal, list_cases
from benchmarks.real_cluster.results_page import (
    CONTAINERS_PAGE,
    RESULTS_PAGE,
    format_runs_table,
    render_page,
    render_real_time_page,
)
from benchmarks.study_arguments import EXIT_USAGE, parse_study_arguments
from compose.engines import choose_engine

REAL_TIME_CASES = "localsgd:8:200m,localsgd:32:5g"
REAL_TIME_ROUNDS = 3


def main(command_line: Sequence[str] | None = None) -> int:
    """Rehearse, print the table, and write the results page if --write is given. Return the exit code."""
    arguments = parse_study_arguments("benchmarks.real_cluster", __doc__, "case", REAL_TIME_CASES, command_line)
    runs = read_measured_runs()
    cases_by_name = {case.name: case for case in list_cases(runs)}
    if problem := arguments.find_problem("case", cases_by_name, "all runs"):
        sys.stderr.write(f"{problem}\n")
        return EXIT_USAGE
    cases = [cases_by_name[name] for name in arguments.parts] or list(cases_by_name.values())
    with closing(choose_engine(arguments.engine).engine) as engine:
        times = Rehearsal(engine, runs, MIN_ROUNDS if arguments.is_virtual else REAL_TIME_ROUNDS).rehearse(cases)
    rows = compare_runs(runs, times)
    sys.stdout.write("\n".join([*format_runs_table(rows), ""]))
    if arguments.machine is not None:
        page = RESULTS_PAGE if arguments.is_virtual else CONTAINERS_PAGE
        text = (
            render_page(rows)
            if arguments.is_virtual
            else render_real_time_page(rows, arguments.engine, describe_origin(arguments.machine))
        )
        page.write_text(text, encoding="utf-8")
    return 0
