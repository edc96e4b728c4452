"""Entry point of `make bench-endurance`, which prints a table per row.

- ROWS=starts,disk measures only these rows. Without ROWS, all rows are measured.
- Rows of a commit are saved in `runs/endurance/<commit>`, the row `starts` after every start. An interrupted
  measurement goes on there. No option measures a row again. A checkout with uncommitted changes saves nothing.
- With --write, the page gets all rows that this commit has.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.endurance.catalogue import ROWS
from benchmarks.endurance.results_page import RESULTS_PAGE, format_page, format_row
from benchmarks.endurance.row import ResultLine, RowContext, RowOutcome
from benchmarks.fidelity.provenance import MeasurementOrigin, current_origin
from compose.engines.local import LocalEngine
from compose.runs.interrupt import raise_on_first_stop_signal

STATE_FOLDER = Path("runs") / "endurance"
EXIT_USAGE = 2


def main() -> int:
    """Measure rows, print their tables, and write the page if --write is given.

    Returns:
        0 if all printed rows meet their limits, 1 if not, 2 if an option or the checkout does not allow the run.
    """
    arguments = _parse_arguments()
    names = [name for name in arguments.rows.split(",") if name] or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        return _report_usage_error(f"unknown row {unknown[0]}; rows are {', '.join(ROWS)}")
    origin = current_origin(LocalEngine())
    if arguments.write and not origin.is_one_commit:
        return _report_usage_error(f"--write needs a commit; this checkout is {origin.commit}: commit all changes")
    with raise_on_first_stop_signal(), tempfile.TemporaryDirectory(prefix="endurance-") as scratch_folder:
        state_folder = arguments.state / origin.commit if origin.is_one_commit else Path(scratch_folder) / "state"
        state_folder.mkdir(parents=True, exist_ok=True)
        outcomes = [_measure_row(name, origin, RowContext(Path(scratch_folder) / name, state_folder)) for name in names]
    sys.stdout.write("\n".join(line for outcome in outcomes for line in format_row(outcome)) + "\n")
    if arguments.write:
        saved = [outcome for name in ROWS if (outcome := read_outcome(state_folder / f"{name}.json"))]
        RESULTS_PAGE.write_text(format_page(saved, origin.host, arguments.write), encoding="utf-8")
    return int(not all(outcome.is_met for outcome in outcomes))


def _report_usage_error(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return EXIT_USAGE


def _measure_row(name: str, origin: MeasurementOrigin, context: RowContext) -> RowOutcome:
    """Return the saved outcome of a row, or measure the row and save its outcome; a row that fails has its error."""
    path = context.state_folder / f"{name}.json"
    if saved := read_outcome(path):
        return saved
    started_s = time.monotonic()
    context.folder.mkdir()
    lines: tuple[ResultLine, ...] = ()
    error_text = ""
    try:
        lines = tuple(ROWS[name].measure(context))
    except Exception as error:  # noqa: BLE001 - a failed row must not stop the others; the page shows the error
        error_text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    outcome = RowOutcome(
        row=name,
        commit=origin.commit,
        date=origin.date,
        lines=lines,
        failed=error_text,
        wall_s=round(time.monotonic() - started_s),
    )
    path.write_text(outcome.model_dump_json(indent=1))
    sys.stderr.write(f"{name}: {outcome.wall_s} s\n")
    return outcome


def read_outcome(path: Path) -> RowOutcome | None:
    """Return the outcome of a row that was measured; None if it was not."""
    return RowOutcome.model_validate_json(path.read_bytes()) if path.exists() else None


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench-endurance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=os.environ.get("ROWS", ""), help="names of rows, separated by commas")
    parser.add_argument("--state", type=Path, default=STATE_FOLDER, help="folder in which rows are saved")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
