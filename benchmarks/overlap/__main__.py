"""Entry point of `make bench-overlap`.

Without arguments, rows are measured in virtual time, once. With `--engine docker`, they are measured in containers,
too, in three rounds of seven trials.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks.commands.measurements import measure_trial_rows
from benchmarks.overlap.cases import CONTAINER_ENGINE, VIRTUAL_TIME_ENGINE, all_rows
from benchmarks.overlap.results_page import RESULTS_PAGE, format_page, format_table
from benchmarks.page_origin import describe_origin
from compose.engines import ENGINE_CLASSES

DEFAULT_ROUNDS = 3
EXIT_USAGE = 2


def main(command_line: Sequence[str] | None = None) -> int:
    """Measure the rows, print their table, and return 1 if a limit is not met."""
    arguments = _parse_arguments(command_line)
    is_virtual = arguments.engine == VIRTUAL_TIME_ENGINE
    if arguments.write is not None and arguments.engine == CONTAINER_ENGINE and not arguments.write:
        sys.stderr.write("--write needs the name of this machine on engine docker\n")
        return EXIT_USAGE
    if arguments.write is not None and arguments.engine not in (VIRTUAL_TIME_ENGINE, CONTAINER_ENGINE):
        sys.stderr.write("the page has rows of the engines simulated and docker; remove --write\n")
        return EXIT_USAGE
    results = measure_trial_rows(list(all_rows(VIRTUAL_TIME_ENGINE)), 1)
    if not is_virtual:
        results += measure_trial_rows(list(all_rows(arguments.engine)), arguments.rounds)
    sys.stdout.write(format_table(results) + "\n")
    if arguments.write is not None:
        missing_engine, origin = (CONTAINER_ENGINE, "") if is_virtual else ("", describe_origin(arguments.write))
        RESULTS_PAGE.write_text(format_page(results, missing_engine, origin), encoding="utf-8")
    return 0 if all(result.meets_limit for result in results) else 1


def _parse_arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-overlap", description=__doc__)
    parser.add_argument("--engine", choices=sorted(ENGINE_CLASSES), default=VIRTUAL_TIME_ENGINE)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="on engines in real time")
    parser.add_argument(
        "--write",
        metavar="MACHINE",
        nargs="?",
        const="",
        help="write the page; on docker with the name of this machine",
    )
    return parser.parse_args(command_line)


if __name__ == "__main__":
    sys.exit(main())
