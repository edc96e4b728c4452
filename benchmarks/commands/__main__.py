"""Entry point of `make bench-commands`."""

import argparse
import sys

from benchmarks.commands.cases import all_trial_rows
from benchmarks.commands.measurements import measure_trial_rows
from benchmarks.commands.metering_cost import METERING_ROW, measure_metering_cost
from benchmarks.commands.results_page import RESULTS_PAGE, format_page, format_table
from benchmarks.page_origin import describe_origin

DEFAULT_ROUNDS = 3


def main() -> int:
    """Measure the chosen rows, print their table, and return 1 if a limit is not met."""
    parser = argparse.ArgumentParser(prog="make bench-commands")
    parser.add_argument("--groups", help="groups of rows, separated by commas; default: all")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS)
    parser.add_argument("--write", metavar="MACHINE", help="write docs/results/commands.md, naming this machine")
    arguments = parser.parse_args()
    groups = arguments.groups.split(",") if arguments.groups else None
    results = []
    if groups is None or METERING_ROW.group in groups:
        results.append(measure_metering_cost(arguments.rounds))
    rows = [row for row in all_trial_rows() if groups is None or row.group in groups]
    results.extend(measure_trial_rows(rows, arguments.rounds))
    sys.stdout.write(format_table(results) + "\n")
    if arguments.write:
        RESULTS_PAGE.write_text(format_page(results, describe_origin(arguments.write)))
    return 0 if all(result.meets_limit for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
