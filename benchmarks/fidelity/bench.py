"""Runner of the fidelity benchmark: measures rows and prints their table (`make bench-fidelity`).

- Without ROWS, all rows are measured and saved. An interrupted run goes on with the missing rows if commit and host are
  still the same. With --write, the rows of this commit and this host are written to the page.
- ROWS=uplinks,incast measures only these rows and prints them. With --write, they are also saved and written to the
  page, except rows that this commit has measured already.
- No option measures one row again for the page. --discard deletes all saved rows, so that all are measured again.
- A checkout with uncommitted changes can measure and print, but saves nothing.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.fidelity.catalogue import BENCH_ROWS, BenchRow
from benchmarks.fidelity.provenance import MeasurementOrigin, current_origin
from benchmarks.fidelity.results_page import RESULTS_PAGE, format_outcomes, read_outcomes, save_outcomes, write_page
from benchmarks.fidelity.row import RowOutcome
from compose.engines.containers.engine import DockerEngine
from compose.runs.interrupt import raise_on_first_stop_signal
from services.schema.errors import HostError, UserError

STATE_FILE = Path("runs") / "fidelity.json"


def main() -> int:
    """Measure rows, print their table and write the page if --write is given. Return the exit code.

    Returns:
        0 if all printed rows are within their gates, 1 if not, 2 if an option or the checkout does not allow the run.
    """
    arguments = _parse_arguments()
    selected = [name for name in arguments.rows.split(",") if name]
    if unknown := [name for name in selected if name not in BENCH_ROWS]:
        return _report_usage_error(f"unknown row {unknown[0]}; rows are {', '.join(BENCH_ROWS)}")
    engine = DockerEngine()
    with raise_on_first_stop_signal():
        engine.prepare(PreparationReporter())
        current = current_origin(engine)
        if arguments.write and not current.is_one_commit:
            return _report_usage_error(f"--write needs a commit; this checkout is {current.commit}: commit all changes")
        is_saved = current.is_one_commit and (bool(arguments.write) or not selected)
        if arguments.discard and is_saved:
            arguments.state.unlink(missing_ok=True)
        known_outcomes = read_outcomes(arguments.state, current) if is_saved else {}
        state_path = arguments.state if is_saved else None
        row_names = selected or list(BENCH_ROWS)
        try:
            outcomes = _measure_missing_rows(row_names, known_outcomes, engine, current, state_path)
        except UserError as error:
            return _report_usage_error(str(error))
    printed = [outcomes[name] for name in BENCH_ROWS if name in row_names]
    sys.stdout.write(f"{format_outcomes(printed)}\n")
    if arguments.write:
        write_page(RESULTS_PAGE, arguments.write, outcomes, BENCH_ROWS)
    return int(not all(outcome.is_within_gates for outcome in printed))


class PreparationReporter:
    """Observer that prints what the engine prepares."""

    def engine_preparation_started(self, description: str) -> None:
        """Print what the engine prepares, for example the image that it builds."""
        sys.stderr.write(f"{description}\n")


def _report_usage_error(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return 2


def _measure_missing_rows(
    row_names: Sequence[str],
    known_outcomes: Mapping[str, RowOutcome],
    engine: DockerEngine,
    current: MeasurementOrigin,
    state_path: Path | None,
) -> dict[str, RowOutcome]:
    """Measure the rows that have no outcome, and return all outcomes.

    Args:
        row_names: rows to measure.
        known_outcomes: outcomes of this commit on this host, by row name. Failed rows count: none is measured again.
        engine: runs the nodes.
        current: commit and host of the known outcomes and of those to be measured.
        state_path: file in which all outcomes are saved after every row; None: they are not saved.

    Raises:
        UserError: the checkout or the host changed while a row to be saved was measured.
    """
    outcomes = dict(known_outcomes)
    missing = [name for name in row_names if name not in outcomes]
    estimates_s = {name: _estimate_wall_s(BENCH_ROWS[name], engine) for name in missing}
    sys.stderr.write(f"{len(missing)} rows, about {sum(estimates_s.values()) / 60:.0f} minutes\n")
    for name in missing:
        outcome = _measure_row(name, BENCH_ROWS[name], engine)
        outcomes[name] = outcome
        if state_path:
            _require_same_origin(name, current, current_origin(engine))
            save_outcomes(state_path, outcomes.values())
        result = outcome.failed or ("ok" if outcome.is_within_gates else "not ok")
        sys.stderr.write(f"{name}: {result} after {outcome.wall_s:g} s (estimate: {estimates_s[name]:.0f} s)\n")
    return outcomes


def _require_same_origin(row_name: str, before: MeasurementOrigin, after: MeasurementOrigin) -> None:
    if not after.is_comparable(before):
        raise UserError(
            f"{row_name}: the checkout or the host changed during the measurement (from {before.commit} to "
            f"{after.commit}); this row was not saved, the rows before it were. Return to {before.commit} without "
            "uncommitted changes and start again to measure the rest"
        )


def _estimate_wall_s(row: BenchRow, engine: DockerEngine) -> float:
    """Return the estimated wall seconds of a row; 0 if the row will fail because this host cannot run its trials."""
    try:
        return row.estimate_wall_s(engine)
    except (HostError, UserError):
        return 0.0


def _measure_row(row_name: str, row: BenchRow, engine: DockerEngine) -> RowOutcome:
    """Measure a row. Return its measurements, or its error, so that the rows after it are measured all the same."""
    started, measured_by = time.monotonic(), current_origin(engine)
    try:
        outcome = RowOutcome(row=row_name, origin=measured_by, lines=tuple(row.measure(engine)))
    except Exception as error:  # noqa: BLE001 - a failed row must not stop the others; the table shows the error
        reason = " ".join(str(error).split()) or "no message"
        outcome = RowOutcome(row=row_name, origin=measured_by, failed=f"{type(error).__name__}: {reason}")
    return outcome.model_copy(update={"wall_s": round(time.monotonic() - started, 1)})


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-fidelity", description=__doc__)
    parser.add_argument(
        "--rows", default=os.environ.get("ROWS", ""), help="names of rows, separated by commas; default: all"
    )
    parser.add_argument("--state", type=Path, default=STATE_FILE, help="file in which a run saves its rows")
    parser.add_argument("--discard", action="store_true", help="delete all saved rows and start again")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args()
