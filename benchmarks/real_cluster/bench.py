"""Rehearse runs of a real cluster, and compare their step times with the measured ones (`make bench-real-cluster`).

Without arguments, all runs are rehearsed in virtual time. On the engines `docker` and `local`, which need real time,
two cases are rehearsed unless --cases names others; the dilation is the one of `dilation: auto`.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing

from benchmarks.real_cluster.comparison import compare_runs
from benchmarks.real_cluster.measured_runs import read_measured_runs
from benchmarks.real_cluster.rehearsal import MIN_ROUNDS, Rehearsal, RehearsalCase, list_cases
from benchmarks.real_cluster.results_page import (
    CONTAINERS_PAGE,
    RESULTS_PAGE,
    format_runs_table,
    render_page,
    render_real_time_page,
)
from compose.engines import ENGINE_CLASSES, choose_engine

VIRTUAL_TIME_ENGINE = "simulated"
REAL_TIME_CASES = "localsgd:8:200m,localsgd:32:5g"
REAL_TIME_ROUNDS = 3
EXIT_USAGE = 2


def main(command_line: Sequence[str] | None = None) -> int:
    """Rehearse, print the table, and write the results page if --write is given. Return the exit code."""
    arguments = _parse_arguments(command_line)
    runs = read_measured_runs()
    is_virtual = arguments.engine == VIRTUAL_TIME_ENGINE
    cases_by_name = {case.name: case for case in list_cases(runs)}
    names = (arguments.cases or ("" if is_virtual else REAL_TIME_CASES)).split(",")
    cases = [cases_by_name[name] for name in names if name in cases_by_name] or list(cases_by_name.values())
    if problem := _find_usage_problem(arguments, names, cases_by_name):
        sys.stderr.write(f"{problem}\n")
        return EXIT_USAGE
    with closing(choose_engine(arguments.engine).engine) as engine:
        times = Rehearsal(engine, runs, MIN_ROUNDS if is_virtual else REAL_TIME_ROUNDS).rehearse(cases)
    rows = compare_runs(runs, times)
    sys.stdout.write("\n".join([*format_runs_table(rows), ""]))
    if arguments.write is not None:
        page = RESULTS_PAGE if is_virtual else CONTAINERS_PAGE
        text = render_page(rows) if is_virtual else render_real_time_page(rows, arguments.engine, arguments.write)
        page.write_text(text, encoding="utf-8")
    return 0


def _parse_arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.real_cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=sorted(ENGINE_CLASSES), default=VIRTUAL_TIME_ENGINE)
    parser.add_argument("--cases", default="", help=f"comma-separated, such as {REAL_TIME_CASES}")
    parser.add_argument(
        "--write",
        metavar="MACHINE",
        nargs="?",
        const="",
        help="also write the results page; on docker and local with this machine name",
    )
    return parser.parse_args(command_line)


def _find_usage_problem(
    arguments: argparse.Namespace, names: Sequence[str], cases_by_name: dict[str, RehearsalCase]
) -> str:
    """Return why the rehearsal cannot start; empty if it can."""
    if unknown := [name for name in names if name and name not in cases_by_name]:
        return f"unknown case {unknown[0]}; cases are {', '.join(cases_by_name)}"
    if arguments.write is None:
        return ""
    if arguments.engine == VIRTUAL_TIME_ENGINE and arguments.cases:
        return "--write writes the page of all runs; remove --cases"
    if arguments.engine != VIRTUAL_TIME_ENGINE and not arguments.write:
        return f"--write needs the name of this machine on engine {arguments.engine}"
    return ""
